#!/bin/sh
# A job whose budget is the memory that it asked for, less a quarter for what flashvm does not page:
#
#     sbatch contrib/slurm/sort.sh
#
#SBATCH --job-name=paged
#SBATCH --mem=256M
#SBATCH --time=10
exec flashvm run --ram "$((SLURM_MEM_PER_NODE * 3 / 4))M" --flash "${TMPDIR:-/var/tmp}" -- sh examples/sort.sh "$@"
