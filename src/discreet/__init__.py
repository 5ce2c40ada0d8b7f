"""Discreet: differentially private reinforcement learning.

Policies are learned from people's trajectories with a guarantee that can be checked::

    import discreet as dr

    mdp = dr.make("riverswim")
    result = dr.simulate(mdp, dr.DPUCBVI(), dr.Central(epsilon=1.0), episodes=20_000, seeds=10)
    print(result.guarantee, result.final_regret.mean())

This package has the names that most programs need. Other names are in its subpackages, such as ``dr.envs``
and ``dr.learners``. Names are loaded when they are first used (PEP 562), so importing the package imports
nothing else.
"""

from discreet import wiring as wiring  # sets the optional parts of the kernel
from discreet.names import __version__ as __version__
from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
__all__ = ["__version__", *__all__]
