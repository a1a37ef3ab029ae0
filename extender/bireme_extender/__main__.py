"""The program ``bireme-extender``: read the settings, then serve until SIGTERM or SIGINT.

Exit status: 0 after a signal, 2 if settings, credentials or ports are unusable, 1 after a bug.
"""

import os
import sys

from bireme.startup import importing

with importing():
    import uvloop

    from bireme import logs, settings_source
    from bireme.core.errors import SettingError
    from bireme.core.settings import SchedulingSettings
    from bireme.kube.credentials import CredentialsError
    from bireme_extender import server
    from bireme_extender.settings import ExtenderSettings


def main() -> int:
    """Run the extender and return its exit status."""
    return logs.exit_status(_run, SettingError, CredentialsError)


def _run() -> int:
    document = settings_source.document(os.environ)
    settings = settings_source.read(ExtenderSettings, os.environ, document)
    scheduling = settings_source.read(SchedulingSettings, os.environ, document)
    logs.configure(settings.log_level)
    uvloop.run(server.run(settings, scheduling))
    return 0


if __name__ == "__main__":
    sys.exit(main())
