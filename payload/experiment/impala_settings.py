"""Settings of IMPALA and APPO. What a setting is when it is not given stands beside it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from payload.experiment.fragment_settings import ByAlgorithm, FragmentSettings
from payload.experiment.settings_of_every_algorithm import (
    AtariOnly,
    ByEnvironment,
    ConvFilters,
    LSTMSettings,
    OtherOnly,
    Schedule,
)


class ImpalaSettings(FragmentSettings, LSTMSettings):
    """What `config` of IMPALA and APPO may contain."""

    max_seq_len: Annotated[int, OtherOnly] = Field(20, ge=1)
    """Steps through which the LSTM's gradient is backpropagated; on Atari games a rollout
    fragment."""
    # Loss. Outside Atari games, the coefficients are RLlib's own.
    normalize_advantages: Annotated[bool, AtariOnly] = True
    """Normalize advantages by their running mean and deviation."""
    vf_loss_coeff: Annotated[
        float | None, ByEnvironment(atari=ByAlgorithm(impala=4.0, appo=0.5), other=0.5)
    ] = Field(None, ge=0)
    """Weight of the value loss. Values of Pong err by 0.1 or 0.2 where normalized advantages are
    about 1: with 0.5 and one pass they are learned slowly, and some runs make no progress for half
    a million environment steps."""
    entropy_coeff: Annotated[
        Schedule | None, ByEnvironment(atari=ByAlgorithm(impala=0.0, appo=0.01), other=0.01)
    ] = None
    """Weight of the entropy bonus: a number or a schedule."""
    anneal_entropy_coeff: Annotated[bool | None, AtariOnly] = None
    """Let entropy_coeff fall to 0 as lr does. Default: where entropy_coeff is not set."""
    final_temperature: Annotated[
        float | None, AtariOnly, ByEnvironment(atari=ByAlgorithm(impala=1.0, appo=0.4))
    ] = Field(None, gt=0)
    """Env runners sample from softmax(logits / temperature); the temperature falls from 1 to this
    value on the way to the stop criterion of time, steps or iterations, most of it at the end."""
    uniform_kl_coeff: Annotated[
        float | None, AtariOnly, ByEnvironment(atari=ByAlgorithm(impala=0.03, appo=0.0))
    ] = Field(None, ge=0)
    """Weight of KL(uniform || policy), which keeps every action possible; 0 where entropy_coeff is
    set. Pong without sticky actions is deterministic: a policy that becomes deterministic early
    stays in a losing cycle, and an entropy bonus gives up an action that has become unlikely."""
    uniform_kl_coeff_at_goal: Annotated[
        float | None, AtariOnly, ByAlgorithm(impala=0.004, appo=None)
    ] = Field(None, gt=0)
    """Value that uniform_kl_coeff is annealed to, near a return goal or as time, steps or
    iterations pass; none where uniform_kl_coeff is set."""
    clip_param: Annotated[float | None, ByEnvironment(atari=0.1, other=0.2)] = Field(None, gt=0)
    """APPO's clip of the probability ratio; IMPALA clips nothing."""
    use_kl_loss: Annotated[bool, OtherOnly] = False
    """APPO's: add the divergence from the old policy to the loss."""
    kl_coeff: Annotated[float | None, OtherOnly] = Field(None, ge=0)
    """Initial weight of that divergence. RLlib: 1.0."""
    kl_target: Annotated[float | None, OtherOnly] = Field(None, gt=0)
    """Target of the divergence, to which its weight is adapted. RLlib: 0.01."""
    vtrace_clip_rho_threshold: float = Field(1.0, gt=0)
    """Clip of rho in V-trace's targets."""
    vtrace_clip_pg_rho_threshold: float = Field(1.0, gt=0)
    """Clip of rho in V-trace's policy gradient."""
    fcnet_hiddens: Annotated[list[Annotated[int, Field(ge=1)]] | None, OtherOnly] = None
    """Units of the fully connected layers of a network for vectors. RLlib: [256, 256]."""
    fcnet_activation: Annotated[str | None, OtherOnly] = None
    """Activation of the fully connected layers. RLlib: tanh."""
    conv_filters: Annotated[ConvFilters | None, OtherOnly] = None
    """Convolutions of a network for images, [channels, kernel, stride] of each. Default: as many as
    reduce the smaller side to at most 8 pixels."""
    vf_share_layers: Annotated[bool | None, OtherOnly] = None
    """Policy and value share all layers but the last. RLlib: IMPALA true, APPO false."""
