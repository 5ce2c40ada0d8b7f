"""Files of trajectories."""

from discreet.data.config_template import schema_template as schema_template
from discreet.data.prepare_config import read_prepare_config as read_prepare_config
from discreet.data.row_batches import open_source as open_source
from discreet.data.schema import Schema as Schema
from discreet.data.schema import read_schema as read_schema
from discreet.data.schema import write_schema as write_schema

__all__: list[str]
