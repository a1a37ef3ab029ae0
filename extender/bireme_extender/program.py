"""The extender as a program: settings from the environment, then serve until told to stop.

Exit status 0 after SIGTERM or SIGINT, 2 when settings or credentials are unusable, 1 after a fault.
"""

import os

import structlog
import uvloop

from bireme.core.errors import SettingError
from bireme.core.settings import SchedulingSettings
from bireme.kube import settings_source
from bireme.kube.credentials import CredentialsError
from bireme_extender import logs, server
from bireme_extender.settings import ExtenderSettings


def main() -> int:
    """Run the extender; the exit status."""
    logs.configure("info")
    log = structlog.get_logger(__name__)
    try:
        document = settings_source.document(os.environ)
        settings = settings_source.read(ExtenderSettings, os.environ, document)
        scheduling = settings_source.read(SchedulingSettings, os.environ, document)
        logs.configure(settings.log_level)
        uvloop.run(server.run(settings, scheduling))
    except (SettingError, CredentialsError) as error:
        log.error("cannot start", error=str(error))
        return 2
    except Exception:  # the last words, as one JSON line like all others
        log.exception("ended by a fault")
        return 1
    return 0
