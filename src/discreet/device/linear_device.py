r"""Device for linear sums under local privacy.

The device computes the contribution of one trajectory, adds independent noise to every cell, and encodes one
message.

Source: Luyo et al. (2021), local algorithms. A device receives three public objects: the form of the session
(:class:`LinearDevice`, with features, bounds and noise), the number of each plan, and the plan. The plan
consists of a policy and a context. The device can also receive a solution instead of a plan, and compute the
plan itself (:mod:`discreet.device.linear_planning`). The device sends only the noisy message.

    device = LinearDevice.from_bytes(published)         # published = session.device.to_bytes()

    message = device(number, context, states, actions, rewards)   # the bytes to send to the session

*Contributions.* With x and y as in :class:`~discreet.mechanisms.linear.linear_queries.MixtureQuery` or
``GramQuery``, the statistics are the upper triangles of x x^T and the vectors x y. The form states bounds for
x and y (the *contract*). A function that never raises projects x and y into these bounds. Every cell gets
noise, including cells that were not visited. Therefore the privacy loss of a message depends only on the
bounds and scales in the form, for every context. The server's sessions and simulations use the same encoder.

*Exact noise.* If ``grid`` is given, rewards are rounded at random to multiples of 1 / grid, and x and y are
truncated to public grids (:data:`GRID`). A contribution is then a vector of integers that satisfies the
bounds, and the noise is discrete. Messages in bytes require exact noise. The payload of the envelope
(:mod:`discreet.device.message_envelope`) contains the noisy integers, block by block
(:mod:`discreet.device.integer_encoding`).

*Privacy loss of one message* (:attr:`LinearDevice.guarantee`). It is computed with the lemmas of
:mod:`discreet.mechanisms.linear.sensitivities`, from the bounds of the projection and the scales of the
noise. ``guarantee`` raises ``ValueError`` if the units or blocks of the form do not match the contributions.
It also raises ``ValueError`` if the features do not have the claimed properties (nonnegative coordinates, a
norm bound).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.device import integer_encoding as blocks
from discreet.device import session_config as forms
from discreet.device.context_form import ContextForm
from discreet.device.discrete_noise import ExactCoins, NoiseCoins, SealingCoins, checked_on_grid, drawn
from discreet.device.linear_forms import GramForm, LinearForm, MixtureForm, Prepared
from discreet.device.message_envelope import Envelope, drawn_nonce, integer, opened
from discreet.device.message_guarantee import MessageGuarantee

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FORMS: Mapping[str, type[LinearForm]] = {form.KIND: form for form in (MixtureForm, GramForm, ContextForm)}

__all__ = ["LinearDevice"]


@dataclass(frozen=True, eq=False)
class LinearDevice(forms.Published):
    """Public form of a session of linear sums under local privacy, and the encoder that a device uses.

    The form is fixed before any data are seen.

    Parameters
    ----------
    form : MixtureForm, GramForm or ContextForm
    family : "gaussian" or "laplace"
    offsets : (blocks + 1,) array: first cell of each block, and the number of cells. The cells of a block
        have noise with the same scale.
    scales : (blocks,) scales of the noise of one device, in multiples of ``units``.
    units : (blocks,) units of the cells; they are 1 without a grid.
    grid : with exact noise, a power of two from 2 to 2^20; rewards are multiples of 1 / grid. None for noise
        in floating point, for simulation.
    session : number in [0, 2^64). Each session must have a unique number.

    Raises
    ------
    ValueError
        If family or grid is not allowed. With grid 1, r - 1/2 would be rounded to numbers outside [-1/2,
        1/2]. With a very large grid, rewards would determine whether a message is sent.
    """

    form: LinearForm
    family: str
    offsets: Ints
    scales: Floats
    units: Floats
    grid: int | None = None
    session: int = 0

    def __post_init__(self) -> None:
        if self.family not in ("gaussian", "laplace"):
            raise ValueError(f"family = {self.family!r}: must be 'gaussian' or 'laplace'")
        if self.grid is not None:
            grid = integer("grid", self.grid, 2, 2**20)
            if grid & (grid - 1):
                raise ValueError(f"grid = {grid}: must be a power of two")
            object.__setattr__(self, "grid", grid)

    def __repr__(self) -> str:
        form, noise = type(self.form).__name__, f"{self.family}, {self.offsets.size - 1} scales"
        grid = "" if self.grid is None else f", grid = {self.grid}"
        return f"<LinearDevice of {form}: {noise}{grid}, session {self.session:#018x}>"

    def cells(
        self, prepared: Prepared, states: Any, actions: Ints, rewards: Floats, coins: NoiseCoins
    ) -> Floats:
        """Return the noisy cells of one user, in multiples of ``units``.

        Rewards are rounded first if there is a grid.

        Parameters
        ----------
        prepared : the public arrays of the plan.
        states, actions, rewards : the user's episode, of shapes (H + 1,), (H,) and (H,); rewards in [0, 1].
            For a ContextForm, ``states`` are the contexts.
        coins : random generator of the noise; ``SecureRng()`` for a real user.
        """
        if self.grid is not None:
            rewards = checked_on_grid(coins.rounded(rewards, self.grid), self.grid)
        grids = [None if self.grid is None else 1] * self.scales.size
        noisy = drawn(self.family, self.scales, self.offsets, coins, grids)
        noisy += self.form.to_cells(self.form.tables(prepared, states, actions, rewards, self.grid))
        return noisy if self.grid is None else checked_on_grid(noisy, 1)

    def __call__(
        self,
        plan: int,
        context: Mapping[str, Any],
        states: Any,
        actions: Any,
        rewards: Any,
        coins: SealingCoins | None = None,
    ) -> bytes:
        """Encode the message of one user of plan ``plan``, whose ``context`` is given.

        The trajectory is states (H + 1,), actions (H,), and rewards (H,) in [0, 1]. ``coins`` is the random
        generator of the device; the default is the operating system's. Raises ``ValueError``, before anything
        is sent, if an entry of the trajectory or the context is out of range, or if the session has no exact
        noise.
        """
        if self.grid is None:
            raise ValueError("grid = None: a message in bytes needs a session with exact noise (Secure())")
        record = self.form.checked_record(states, actions, rewards)
        own = ExactCoins() if coins is None else coins
        found = self.cells(self.form.prepared(context), *record, own)
        return self.write(plan, found.astype(np.int64), drawn_nonce(own))

    @cached_property
    def guarantee(self) -> MessageGuarantee:
        """Privacy loss of one message, as derived in the module docstring.

        Raises ``ValueError`` if the blocks, units and bounds of the form do not match the contributions.
        """
        form, laplace = self.form, self.family == "laplace"
        units = np.ones(len(form.blocks)) if self.grid is None else form.units(self.grid)
        if form.names != tuple(form.shapes):
            raise ValueError(f"form.names = {form.names}: must be {tuple(form.shapes)}")
        if not (np.array_equal(self.offsets, form.offsets) and np.array_equal(self.units, units)):
            raise ValueError("offsets, units: are not those of the form's contributions")
        if self.scales.shape != units.shape or not ((self.scales > 0) & np.isfinite(self.scales)).all():
            raise ValueError(f"scales: must be {units.size} finite numbers above 0")
        scales: dict[tuple[str, int], float] = {}
        for (name, step, diagonal), scale in zip(form.blocks, (self.scales * units).tolist(), strict=True):
            own = scale / math.sqrt(2.0) if diagonal and not laplace else scale
            scales[name, step] = min(own, scales.get((name, step), math.inf))
        losses = form.losses(scales, laplace)
        if laplace:
            return MessageGuarantee(epsilon=math.fsum(losses), exact=self.grid is not None)
        mu = math.hypot(*losses)
        if self.grid is not None:
            return MessageGuarantee(rho=0.5 * mu * mu)
        return MessageGuarantee(mu=mu, exact=False)

    # ------------------------------------------------------------------------------ in bytes
    def write(self, plan: int, cells: Ints, nonce: bytes) -> bytes:
        """Return the bytes of a message of plan ``plan`` with the integers ``cells`` and 16 random bytes
        ``nonce``.
        """
        return Envelope("sums", plan, self.digest, nonce, blocks.packed(cells, self.offsets)).to_bytes()

    def read(self, plan: int, message: Any) -> tuple[bytes, Ints]:
        """Return the nonce and the (cells,) integers of a message of plan ``plan``.

        Raises :class:`~discreet.device.message_envelope.MessageRejected` if the bytes are not such a message.
        """
        found = opened(message, "sums", self.digest, plan)
        return found.nonce, blocks.unpacked(found.payload, self.offsets)

    def to_bytes(self) -> bytes:
        """Return the form as bytes to publish, in the layout of :mod:`discreet.device.session_config`.

        The attributes of ``form`` become fields with names "form.NAME".
        """
        plain = {"form." + name: value for name, value in self.form.to_plain().items()}
        plain |= {one.name: getattr(self, one.name) for one in fields(self) if one.name != "form"}
        return forms.published(self.form.KIND, plain | {"session": f"{self.session:016x}"})

    @classmethod
    def from_bytes(cls, published: bytes) -> LinearDevice:
        """Return the device for a ``published`` form. Raises ``ValueError`` for invalid bytes."""
        kind, plain = forms.taken_apart(published, tuple(_FORMS))
        own = {name.removeprefix("form."): value for name, value in plain.items() if name.startswith("form.")}
        try:
            form = _FORMS[kind].from_plain(own)
        except (KeyError, TypeError) as error:
            raise ValueError(f"published: is not a form of linear sums ({error!r})") from None
        rest = {name: value for name, value in plain.items() if not name.startswith("form.")}
        return forms.built(cls, rest | {"form": form}, published)
