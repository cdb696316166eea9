"""Imports what an experiment names: a package with an environment, a class of one's own."""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import TypeVar

from payload.environments.missing_packages import remedy
from payload.errors import UserError, nearest, raised

Base = TypeVar("Base")


def import_package(where: str, package: str) -> ModuleType:
    """Returns the imported package.

    Args:
        where: The setting that names it, with its value; error messages begin with it.

    Raises:
        UserError: It does not exist or cannot be imported.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):
            raise _import_failed(where, package, error) from None
        here = nearest(package, [module.name for module in pkgutil.iter_modules()])
        raise UserError(
            f"{where}: cannot import {error.name}{here}. Set source_directory to the "
            "folder that contains it, or add its PyPI package to pip_packages"
        ) from None
    except Exception as error:  # A package's own code may raise anything.
        raise _import_failed(where, package, error) from None


def own_class(key: str, name: str, base: type[Base]) -> type[Base]:
    """Returns the class that `name`, package:Class, means.

    Args:
        key: The setting that names it.

    Raises:
        UserError: It cannot be imported, does not exist, or is not a subclass of `base`.
    """
    package, _, class_name = name.rpartition(":")
    module = import_package(f"{key}: {name}", package)
    own = getattr(module, class_name, None)
    if isinstance(own, type) and issubclass(own, base):
        return own
    classes = inspect.getmembers(module, lambda each: isinstance(each, type))
    fit = [known for known, each in classes if issubclass(each, base) and each is not base]
    if own is None:
        raise UserError(f"{key}: {name}: {package} has no {class_name}{nearest(class_name, fit)}")
    raise UserError(
        f"{key}: {name}: {class_name} must be a subclass of {base.__name__}"
        f"{nearest(class_name, fit)}"
    )


def _import_failed(where: str, package: str, error: Exception) -> UserError:
    return UserError(f"{where}: {package} cannot be imported: {raised(error)}{remedy(error)}")
