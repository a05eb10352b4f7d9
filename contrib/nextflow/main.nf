// A process whose memory is a budget: Nextflow gives the task `memory`, flashvm keeps the program within it.
//
//     nextflow run contrib/nextflow/main.nf

process numbers {
    output:
    path 'numbers.txt'

    script:
    'seq 3000000 -1 1 > numbers.txt'
}

process sort {
    memory 64.MB

    input:
    path numbers

    output:
    path 'sorted.txt'

    script:
    """
    flashvm run --ram ${task.memory.toMega()}M --flash /var/tmp -- \\
        sort --numeric-sort --buffer-size=1G -o sorted.txt ${numbers}
    """
}

workflow {
    numbers | sort | view
}
