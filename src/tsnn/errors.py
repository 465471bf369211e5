"""The error tree.

    TsnnError                  everything this package raises on purpose
    ├── InputError             a value, table or file that cannot be used as it is
    ├── ConfigError            a configuration that contradicts itself or names what does not exist
    ├── RunError               a run folder that is missing, torn or made by another version
    ├── ContractError          a scorer whose answers depend on what they must not depend on
    └── MissingNameError       a name that an object of this package does not have

Each message is one sentence that says what to do; the command line prints it and exits with status 2.
"""


class TsnnError(Exception):
    """Base of every error the package raises on purpose."""


class InputError(TsnnError, ValueError):
    """Input that cannot be used as it is."""


class ConfigError(TsnnError, ValueError):
    """A configuration that contradicts itself or names what does not exist."""


class RunError(TsnnError, RuntimeError):
    """A run folder that is missing, torn or incompatible."""


class ContractError(TsnnError, ValueError):
    """A scorer whose answers depend on what they must not depend on."""


class MissingNameError(TsnnError, AttributeError):
    """A name that an object of this package does not have."""
