"""What the assembler says of parameters is what a launch packs: eight bytes each, one behind the other."""

import pytest

from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.cuda.nvidia.cubin import parameters_of
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.parse import parse_program
from tests.codegen.schedule.test_primitives import SIZES

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
PROGRAMS = {
    "sizes": SIZES,
    "checks": "x: f32[9] = input()\nids: i64[700] = input()\ny[i]: f32[700] = x[ids[i]]\nreturn y\n",
    "segments": """
ids: i32[1000] = input()
offsets, order = segments[50](i64(ids[t]) for t in range(1000))
return offsets, order
""",
}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_parameters_are_eight_bytes_each_as_they_are_packed(name):
    source = emit(verify_nest(lower(autoschedule(parse_program(PROGRAMS[name]), H200))))
    made = nvrtc.compile_text(source.text, "sm_90")
    packed = {launch.kernel: launch.parameters for launch in source.launches}
    assert parameters_of(made.cubin) == packed == {name: r.parameters for name, r in made.resources.items()}
    for launch in source.launches:
        count = len(launch.buffers) + len(launch.scalars) + launch.reports
        assert launch.parameters == tuple((8 * k, 8) for k in range(count))
