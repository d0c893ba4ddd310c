"""The only place that deletes (decision 14): what an abandoned attempt wrote, and what no snapshot needs any more."""

from maintainer.maintain.reclaim.abort import AddedFile as AddedFile
from maintainer.maintain.reclaim.abort import abort as abort
from maintainer.maintain.reclaim.abort import abort_all as abort_all
from maintainer.maintain.reclaim.abort import abort_payloads as abort_payloads
from maintainer.maintain.reclaim.abort import added_files as added_files
from maintainer.maintain.reclaim.abort import kept_names as kept_names
from maintainer.maintain.reclaim.abort import names_in_use as names_in_use
