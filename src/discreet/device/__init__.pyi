"""Code that runs on a user's device."""

from discreet.device.count_device import CountDevice as CountDevice
from discreet.device.feature_map import FeatureMap as FeatureMap
from discreet.device.linear_device import LinearDevice as LinearDevice
from discreet.device.linear_planning import greedy_action as greedy_action
from discreet.device.linear_planning import optimistic_action as optimistic_action
from discreet.device.message_envelope import Envelope as Envelope
from discreet.device.message_envelope import MessageRejected as MessageRejected
from discreet.device.message_guarantee import MessageGuarantee as MessageGuarantee
from discreet.device.randomized_response_device import ReportDevice as ReportDevice
from discreet.device.shuffle_encoder import ShuffleEncoder as ShuffleEncoder

__all__: list[str]
