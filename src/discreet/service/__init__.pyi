"""The policy service."""

from discreet.service.server import serve as serve
from discreet.service.server import serve_shuffler as serve_shuffler
from discreet.service.study_config import Study as Study
from discreet.service.study_config import read_study as read_study

__all__: list[str]
