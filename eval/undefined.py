#!/usr/bin/env python3
"""Finds names that a Python script uses but does not define, such as a missing import, without running it.

usage: eval/undefined.py FILE...   (without files: those of `FOLDERS`)

It knows scopes (`symtable`), not the flow of control: a name that is bound anywhere in its module counts as defined.
"""

import ast
import builtins
import sys
import symtable
from pathlib import Path

FOLDERS = ["eval", "examples", "python"]
# Names that Python itself binds in a module, and in the body of a class.
ALWAYS = {*dir(builtins), "__file__", "__annotations__", "__module__", "__qualname__"}


def scopes(table):
    yield table
    for child in table.get_children():
        yield from scopes(child)


def bound(symbol):
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def undefined(source, file):
    module = symtable.symtable(source, file, "exec")
    tables = list(scopes(module))
    defined = {symbol.get_name() for symbol in module.get_symbols() if bound(symbol)}
    # `global NAME` in a function defines it too.
    defined |= {s.get_name() for t in tables for s in t.get_symbols() if s.is_declared_global() and s.is_assigned()}
    used = {
        symbol.get_name()
        for table in tables
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (symbol.is_global() or table is module)
    }
    return used - defined - ALWAYS


def main():
    files = sys.argv[1:]
    if not files:
        root = Path(__file__).resolve().parent.parent
        files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*.py"))]
    found = False
    for file in files:
        source = Path(file).read_text()
        names = undefined(source, str(file))
        lines = {node.id: node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        for name in sorted(names):
            found = True
            print(f"{file}:{lines.get(name, 1)}: {name} is not defined")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
