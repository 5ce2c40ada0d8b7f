"""Simulations."""

from discreet.experiments.context_runs import ContextSetup as ContextSetup
from discreet.experiments.engine import Engine as Engine
from discreet.experiments.engine import EngineError as EngineError
from discreet.experiments.engine import open_engine as open_engine
from discreet.experiments.estimate import Forecast as Forecast
from discreet.experiments.estimate import estimate_run as estimate_run
from discreet.experiments.features_fit import FeaturesFit as FeaturesFit
from discreet.experiments.features_fit import check_features as check_features
from discreet.experiments.plots import regret_figure as regret_figure
from discreet.experiments.results import Result as Result
from discreet.experiments.simulate import Setup as Setup
from discreet.experiments.sweep import compare as compare
from discreet.experiments.sweep import load_results as load_results
from discreet.experiments.tuning import Tuning as Tuning
from discreet.experiments.tuning import tune as tune

__all__: list[str]
