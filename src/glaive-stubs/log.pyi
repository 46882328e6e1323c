"""Set-up of logging."""

from glaive.tracing import ENV_NAME_PYLANCE_LOGGING_LEVEL as ENV_NAME_PYLANCE_LOGGING_LEVEL
from glaive.tracing import LOGGER as LOGGER
from glaive.tracing import get_log_level as get_log_level
from glaive.tracing import get_python_log_level as get_python_log_level
from glaive.tracing import set_logger as set_logger
