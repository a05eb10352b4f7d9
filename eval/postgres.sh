#!/usr/bin/env bash
# A PostgreSQL server with parallel queries, as a program for versus.py: many processes, three of which want memory.
#
#   eval/versus.py --ram 120M -- eval/postgres.sh
#
# Needs the package postgresql. Prints the queries' results. As root it runs as the user postgres.
set -euo pipefail

if [ "$(id -u)" = 0 ]; then
	exec setpriv --reuid postgres --regid postgres --clear-groups "$0"
fi
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
export LC_ALL=C PGPORT=5998
# Not in TMPDIR, which may be another user's.
folder=$(mktemp -d -p /var/tmp)
export PGHOST=$folder
data=$folder/data
trap 'pg_ctl -D "$data" -w -m immediate stop >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
initdb -D "$data" -A trust >/dev/null
cat >>"$data/postgresql.conf" <<END
shared_buffers = 128MB
work_mem = 200MB
maintenance_work_mem = 128MB
port = $PGPORT
unix_socket_directories = '$folder'
listen_addresses = ''
fsync = off
END
pg_ctl -D "$data" -w -l "$folder/log" start >/dev/null
pgbench -i -s 5 -q postgres >/dev/null 2>&1
psql -At postgres <<'END'
set max_parallel_workers_per_gather = 2;
select count(*), sum(hashtext(s)::bigint) from (select md5(aid::text) s, row_number() over (order by md5(aid::text)) r from pgbench_accounts) x where r % 3 = 0;
select count(*), sum(length(f)) from (select bid % 7, string_agg(md5(aid::text), ',') f from pgbench_accounts group by 1) x;
select count(*) from (select distinct md5((aid * 7)::text) from pgbench_accounts) y;
select count(*) from pgbench_accounts a join pgbench_accounts b on md5(a.aid::text) = md5(b.aid::text);
create index on pgbench_accounts (md5(aid::text));
select count(*), sum(n) from (select generate_series(1, 2000000) n) z;
END
pg_ctl -D "$data" -w -m fast stop >/dev/null
