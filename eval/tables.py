#!/usr/bin/env python3
"""Fills the tables of a document from CSV files.

    eval/tables.py docs/reproduction/craw.md

A line `<!-- table: FILE.csv columns=1,2,5 where=memory:10 %,20 % -->` stands before a table, which is replaced by the
file's columns (numbered from 1; all by default) of the rows in which the named column has one of the values. The file
is relative to the document. `crates/flashvm-core/tests/documents.rs` checks that the tables are those of the files.
"""

import argparse
import csv
import pathlib
import re

MARK = re.compile(r"<!-- table: (\S+\.csv)(?: columns=([\d,]+))?(?: where=([^:]+):(.+))? -->")
NUMBER = re.compile(r"[-+]?[\d,.]+( %)?")


def table(path, columns, key, values):
    with open(path, newline="") as file:
        head, *rows = csv.reader(file)
    if key:
        rows = [row for row in rows if row[head.index(key)] in values.split(",")]
    chosen = [int(column) - 1 for column in columns.split(",")] if columns else range(len(head))
    numeric = [all(not row[at] or NUMBER.fullmatch(row[at]) for row in rows) for at in chosen]
    yield [head[at] for at in chosen]
    yield ["---:" if is_number else "---" for is_number in numeric]
    for row in rows:
        yield [row[at] for at in chosen]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=pathlib.Path)
    document = parser.parse_args().document
    try:
        text = document.read_text()
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"{document}: {error}: name a document in Markdown")
    lines, skipping = [], False
    for line in text.splitlines():
        # After a mark: the blank line and the table that were there.
        if skipping and (not line or line.startswith("|")):
            continue
        if skipping:
            lines.append("")
        skipping = False
        lines.append(line)
        if found := MARK.fullmatch(line):
            path, columns, key, values = found.groups()
            lines.append("")
            lines.extend(f"| {' | '.join(cells)} |" for cells in table(document.parent / path, columns, key, values))
            skipping = True
    document.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
