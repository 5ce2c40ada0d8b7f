"""Plug-in that registers the published code of papers.

``discreet run --plugin papers.presets --set preset=code:cz22`` runs the first of them.
"""

from discreet.registry import register_published_code
from papers.chowdhury_zhou_2021.public_code import published_code_setup

register_published_code("code:cz22", published_code_setup)
