"""Write stubs/pyarrow: the names and parameters of PyArrow's functions, as the installed PyArrow has them, for mypy.

PyArrow comes without types. Here a name that it has not, a keyword that a function does not take and an argument that
is missing become errors of mypy; values are `Any`, since what an Array or a DataType can do depends on its type, which
no annotation of ours says. Why not the stubs of others: docs/decisions/0025.
"""

from __future__ import annotations

import importlib
import inspect
import keyword
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = [f"pyarrow{name}" for name in ("", ".compute", ".parquet", ".types", ".dataset", ".fs", ".ipc", ".csv")]
STUBS = Path(__file__).parent.parent / "stubs"


def main() -> None:
    modules = {name: importlib.import_module(name) for name in MODULES}
    for name, module in modules.items():
        file = STUBS / ("pyarrow/__init__.pyi" if name == "pyarrow" else name.replace(".", "/") + ".pyi")
        file.parent.mkdir(parents=True, exist_ok=True)
        head = f"# scripts/make_stubs.py wrote this from PyArrow {modules['pyarrow'].__version__}.\n"
        file.write_text(head + "from typing import Any, TypeAlias\n\n" + "\n".join(lines(module, modules)) + "\n")


def lines(module: ModuleType, modules: dict[str, ModuleType]) -> Iterator[str]:
    public = {n: v for n, v in vars(module).items() if n == "__version__" or (n[0] != "_" and not keyword.iskeyword(n))}
    for name, value in sorted(public.items()):
        if isinstance(value, ModuleType):
            if value.__name__ in modules and "." in value.__name__:
                yield f"from pyarrow import {name} as {name}"
        elif isinstance(value, type):
            yield from class_lines(name, value)
        elif callable(value):
            yield f"def {name}({parameters(value)}) -> Any: ..."
        else:
            yield f"{name}: Any"


def class_lines(name: str, cls: type) -> Iterator[str]:
    """Exceptions are caught, readers and writers are called by keywords; of other classes any use is right."""
    if issubclass(cls, BaseException):
        yield f"class {name}({', '.join(base.__name__ for base in cls.__bases__)}): ..."
    elif name in ("ParquetFile", "ParquetWriter"):
        yield f"class {name}(Any):\n    def __init__({parameters(vars(cls)['__init__'])}) -> None: ..."
    else:
        yield f"{name}: TypeAlias = Any"


def parameters(function: Callable[..., Any]) -> str:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return "*args: Any, **kwargs: Any"
    plain = [
        p.replace(annotation=inspect.Parameter.empty, default=p.default if p.default is p.empty else ...)
        for p in signature.parameters.values()
    ]
    typed = [p if p.name == "self" else p.replace(annotation=Any) for p in plain]
    text = str(signature.replace(parameters=typed, return_annotation=inspect.Signature.empty))
    return text[1:-1].replace("typing.Any", "Any").replace("Ellipsis", "...")


if __name__ == "__main__":
    main()
