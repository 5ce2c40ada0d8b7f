"""Plug-in that registers the learner ``noise-aware-sums`` of this study."""

from discreet.registry import register
from papers.price_of_privacy.noise_aware_sums import NoiseAwareOnSums

register(
    "learner",
    "noise-aware-sums",
    NoiseAwareOnSums,
    summary="noise-aware from the newest sums alone: also on trees; for comparisons, not compiled",
    fits="any privatizer",
)
