"""Coefficients of polynomials, lowest power first; made by `scripts/fit_polynomials.py`, which says what each approximates."""

from __future__ import annotations

_hex = float.fromhex

FLOAT: dict[str, tuple[float, ...]] = {
    # error 2^-28.2
    "exp": (
        _hex("0x1.fffffc0000000p-2"),
        _hex("0x1.55548c0000000p-3"),
        _hex("0x1.5558580000000p-5"),
        _hex("0x1.123df00000000p-7"),
        _hex("0x1.6ac8cc0000000p-10"),
    ),
    # error 2^-26.3
    "exp2": (
        _hex("0x1.62e4300000000p-1"),
        _hex("0x1.ebfb940000000p-3"),
        _hex("0x1.c6af9e0000000p-5"),
        _hex("0x1.3b68160000000p-7"),
        _hex("0x1.5ef4de0000000p-10"),
        _hex("0x1.179a6a0000000p-13"),
    ),
    # error 2^-29.4
    "log": (
        _hex("0x1.5555560000000p-2"),
        _hex("-0x1.ffff020000000p-3"),
        _hex("0x1.99985e0000000p-3"),
        _hex("-0x1.559bb00000000p-3"),
        _hex("0x1.24d7b00000000p-3"),
        _hex("-0x1.f336fa0000000p-4"),
        _hex("0x1.bb4ec20000000p-4"),
        _hex("-0x1.07dcc60000000p-3"),
        _hex("0x1.e01e640000000p-4"),
    ),
    # error 2^-27.3
    "log2": (
        _hex("-0x1.7154780000000p-1"),
        _hex("0x1.ec70da0000000p-2"),
        _hex("-0x1.7152300000000p-2"),
        _hex("0x1.27613c0000000p-2"),
        _hex("-0x1.ed3c620000000p-3"),
        _hex("0x1.aaf0d00000000p-3"),
        _hex("-0x1.635b120000000p-3"),
        _hex("0x1.0eba720000000p-3"),
        _hex("-0x1.8f489a0000000p-3"),
        _hex("0x1.0a84f80000000p-2"),
    ),
    # error 2^-27.9
    "sin": (
        _hex("-0x1.5555460000000p-3"),
        _hex("0x1.1107780000000p-7"),
        _hex("-0x1.99540a0000000p-13"),
    ),
    # error 2^-33.0
    "cos": (
        _hex("0x1.55554a0000000p-5"),
        _hex("-0x1.6c0c280000000p-10"),
        _hex("0x1.99e80c0000000p-16"),
    ),
    # error 2^-29.7
    "tanh": (
        _hex("-0x1.55554a0000000p-2"),
        _hex("0x1.110cee0000000p-3"),
        _hex("-0x1.b91e7e0000000p-5"),
        _hex("0x1.58e5180000000p-6"),
        _hex("-0x1.9921a00000000p-8"),
    ),
    # error 2^-31.6
    "sinh": (
        _hex("0x1.5555560000000p-3"),
        _hex("0x1.1110e00000000p-7"),
        _hex("0x1.a022ba0000000p-13"),
        _hex("0x1.756cb40000000p-19"),
    ),
    # error 2^-28.5
    "atan": (
        _hex("-0x1.55553e0000000p-2"),
        _hex("0x1.9991e40000000p-3"),
        _hex("-0x1.2420840000000p-3"),
        _hex("0x1.c08c1a0000000p-4"),
        _hex("-0x1.5808140000000p-4"),
        _hex("0x1.da24ca0000000p-5"),
        _hex("-0x1.fd6fbc0000000p-6"),
        _hex("0x1.6410e60000000p-7"),
        _hex("-0x1.d32dbc0000000p-10"),
    ),
    # error 2^-27.6
    "asin": (
        _hex("0x1.5555c80000000p-3"),
        _hex("0x1.3302040000000p-4"),
        _hex("0x1.747bb60000000p-5"),
        _hex("0x1.8c3e7c0000000p-6"),
        _hex("0x1.595c260000000p-5"),
    ),
    # error 2^-30.1
    "erf_low": (
        _hex("0x1.06eba80000000p-3"),
        _hex("-0x1.8127400000000p-2"),
        _hex("0x1.ce2d640000000p-4"),
        _hex("-0x1.b801180000000p-6"),
        _hex("0x1.5449e40000000p-8"),
        _hex("-0x1.a606c20000000p-11"),
        _hex("0x1.4f562e0000000p-14"),
    ),
    # error 2^-32.1
    "erf_high": (
        _hex("0x1.20e8c40000000p+0"),
        _hex("0x1.4570b00000000p-1"),
        _hex("0x1.af27d40000000p-4"),
        _hex("-0x1.737e160000000p-6"),
        _hex("0x1.8010e80000000p-9"),
        _hex("-0x1.a040aa0000000p-15"),
        _hex("-0x1.7e43f00000000p-15"),
        _hex("0x1.4b4dfc0000000p-18"),
    ),
    "ln2": (
        _hex("0x1.62e4300000000p-1"),
        _hex("-0x1.05c6100000000p-29"),
    ),
    "log2e": (
        _hex("0x1.7154760000000p+0"),
        _hex("0x1.4ae0c00000000p-26"),
    ),
    "pi": (
        _hex("0x1.921fb60000000p+1"),
        _hex("-0x1.777a5c0000000p-24"),
    ),
    "half_pi": (
        _hex("0x1.921fb60000000p+0"),
        _hex("-0x1.777a5c0000000p-25"),
        _hex("-0x1.ee59da0000000p-50"),
    ),
    "two_over_pi": (_hex("0x1.45f3060000000p-1"),),
    "two_thirds": (
        _hex("0x1.5555560000000p-1"),
        _hex("-0x1.5555560000000p-26"),
    ),
}

DOUBLE: dict[str, tuple[float, ...]] = {
    # error 2^-57.4
    "exp": (
        _hex("0x1.000000000000ap-1"),
        _hex("0x1.5555555555503p-3"),
        _hex("0x1.5555555550606p-5"),
        _hex("0x1.1111111124d2bp-7"),
        _hex("0x1.6c16c184b5650p-10"),
        _hex("0x1.a01a013d435cep-13"),
        _hex("0x1.a01998839b6dbp-16"),
        _hex("0x1.71def348415cdp-19"),
        _hex("0x1.28aee73773abbp-22"),
        _hex("0x1.adda859807ae1p-26"),
    ),
    # error 2^-57.2
    "exp2": (
        _hex("0x1.62e42fefa39efp-1"),
        _hex("0x1.ebfbdff82c574p-3"),
        _hex("0x1.c6b08d704a1fbp-5"),
        _hex("0x1.3b2ab6fbaade9p-7"),
        _hex("0x1.5d87fe786a9dfp-10"),
        _hex("0x1.430912dcbe13ap-13"),
        _hex("0x1.ffcbfd7c84d93p-17"),
        _hex("0x1.62c09225f2f81p-20"),
        _hex("0x1.b522c2f8d654bp-24"),
        _hex("0x1.e33563245e16fp-28"),
        _hex("0x1.ed1aab44d9131p-32"),
        _hex("0x1.f8a4220414d4cp-35"),
    ),
    # error 2^-37.6
    "pow_log2": (
        _hex("0x1.71547652b8171p+0"),
        _hex("-0x1.71547652f1626p-1"),
        _hex("0x1.ec709dc562abcp-2"),
        _hex("-0x1.715475bdd95b7p-2"),
        _hex("0x1.2776c3c1d29b4p-2"),
        _hex("-0x1.ec710d911316cp-3"),
        _hex("0x1.a6181d700f8e7p-3"),
        _hex("-0x1.714207968aeb2p-3"),
        _hex("0x1.4831858ac7196p-3"),
        _hex("-0x1.2903f0b452493p-3"),
        _hex("0x1.0e8067a63c967p-3"),
        _hex("-0x1.c92e2cf084120p-4"),
        _hex("0x1.9f0ce8b7c79ddp-4"),
        _hex("-0x1.35220ba7ee525p-3"),
        _hex("0x1.2ad21e7c8a529p-3"),
    ),
    # error 2^-34.3
    "pow_exp2": (
        _hex("0x1.62e42ff0e1b8ap-1"),
        _hex("0x1.ebfbe0779f6e7p-3"),
        _hex("0x1.c6b08ac078d57p-5"),
        _hex("0x1.3b29f390556dap-7"),
        _hex("0x1.5d8a867ea396bp-10"),
        _hex("0x1.445c80aecf5d5p-13"),
        _hex("0x1.fde46c85e1517p-17"),
    ),
    # error 2^-61.6
    "atanh": (
        _hex("0x1.555555555554fp-1"),
        _hex("0x1.999999999c187p-2"),
        _hex("0x1.24924921e32f6p-2"),
        _hex("0x1.c71c7490d9866p-3"),
        _hex("0x1.745c4a963bf8ep-3"),
        _hex("0x1.3b35c9e31890ap-3"),
        _hex("0x1.0dcafa639d6edp-3"),
        _hex("0x1.1b85ba9d82afep-3"),
    ),
    # error 2^-68.0
    "pow_atanh": (
        _hex("0x1.9999999999967p-2"),
        _hex("0x1.2492492498f14p-2"),
        _hex("0x1.c71c71bc4f0a8p-3"),
        _hex("0x1.745d1bd146c93p-3"),
        _hex("0x1.3b12963e8a7c5p-3"),
        _hex("0x1.113a5550ca487p-3"),
        _hex("0x1.dac946cb11665p-4"),
        _hex("0x1.01937a48d8395p-3"),
    ),
    # error 2^-57.9
    "sin": (
        _hex("-0x1.5555555555548p-3"),
        _hex("0x1.111111110f730p-7"),
        _hex("-0x1.a01a019be91e5p-13"),
        _hex("0x1.71de355524307p-19"),
        _hex("-0x1.ae5e4b7a539fdp-26"),
        _hex("0x1.5d8b519c1b752p-33"),
    ),
    # error 2^-63.9
    "cos": (
        _hex("0x1.555555555554bp-5"),
        _hex("-0x1.6c16c16c15015p-10"),
        _hex("0x1.a01a019c8f24fp-16"),
        _hex("-0x1.27e4f7f190ea9p-22"),
        _hex("0x1.1ee9dbce99759p-29"),
        _hex("-0x1.8fa68435f335fp-37"),
    ),
    # error 2^-63.0
    "sinh": (
        _hex("0x1.5555555555555p-3"),
        _hex("0x1.111111111119bp-7"),
        _hex("0x1.a01a01a00735bp-13"),
        _hex("0x1.71de3a68d033ap-19"),
        _hex("0x1.ae64412292d88p-26"),
        _hex("0x1.61314d574354ap-33"),
        _hex("0x1.a6655148d514fp-41"),
        _hex("0x1.d29cf0f61aa08p-48"),
    ),
    # error 2^-55.8
    "atan": (
        _hex("-0x1.5555555555526p-2"),
        _hex("0x1.99999999955abp-3"),
        _hex("-0x1.249249237f084p-3"),
        _hex("0x1.c71c717fb019fp-4"),
        _hex("-0x1.745d11ab5ea4dp-4"),
        _hex("0x1.3b13666c24fe3p-4"),
        _hex("-0x1.110e4f62e5191p-4"),
        _hex("0x1.e1bb8e013fe07p-5"),
        _hex("-0x1.ae5df730cd95dp-5"),
        _hex("0x1.82d903179e05ap-5"),
        _hex("-0x1.599eb9f20b7e3p-5"),
        _hex("0x1.2c22c20194357p-5"),
        _hex("-0x1.e9d2ef44563bdp-6"),
        _hex("0x1.680a8bf9caeb1p-6"),
        _hex("-0x1.c72e94d364353p-7"),
        _hex("0x1.d72e5323f1343p-8"),
        _hex("-0x1.79ac5a2caefb9p-9"),
        _hex("0x1.b33a0e747accdp-11"),
        _hex("-0x1.3e994d7244e57p-13"),
        _hex("0x1.bb08fce7e3228p-17"),
    ),
    # error 2^-55.9
    "asin": (
        _hex("0x1.5555555555391p-3"),
        _hex("0x1.333333336e6e3p-4"),
        _hex("0x1.6db6db4282418p-5"),
        _hex("0x1.f1c72c3740f44p-6"),
        _hex("0x1.6e89f45c45e12p-6"),
        _hex("0x1.1c6be08a17b3ap-6"),
        _hex("0x1.c6fdcf9b91421p-7"),
        _hex("0x1.8ec2c9c0f0c04p-7"),
        _hex("0x1.abcffa4f58d0dp-8"),
        _hex("0x1.3ff4def6535c8p-6"),
        _hex("-0x1.09d454e84405dp-6"),
        _hex("0x1.056e14eb35d74p-5"),
    ),
    # error 2^-56.3
    "erf_low": (
        _hex("0x1.06eba8214db69p-3"),
        _hex("-0x1.812746b037a23p-2"),
        _hex("0x1.ce2f21a0455cbp-4"),
        _hex("-0x1.b82ce3133e66bp-6"),
        _hex("0x1.565bcd278461cp-8"),
        _hex("-0x1.c02db7ff808e4p-11"),
        _hex("0x1.f9a38a33fe6ddp-14"),
        _hex("-0x1.f4d8418fc9950p-17"),
        _hex("0x1.ba1a5478d2b43p-20"),
        _hex("-0x1.602ed97226d8fp-23"),
        _hex("0x1.f77a5cea6ea74p-27"),
        _hex("-0x1.0c5c81c58da01p-30"),
    ),
    # error 2^-60.8
    "erf_high": (
        _hex("0x1.20dd759fc439fp+0"),
        _hex("0x1.45f2f87603d53p-1"),
        _hex("0x1.a4f764d81d27bp-4"),
        _hex("-0x1.398986e7c8af6p-6"),
        _hex("-0x1.8bdb47974a5f4p-13"),
        _hex("0x1.b2dd3bc8b3466p-10"),
        _hex("-0x1.19bb0deb8fc7ep-11"),
        _hex("-0x1.161291ae83089p-15"),
        _hex("0x1.ec89e1f787426p-14"),
        _hex("-0x1.1d0b431ab5f9ep-14"),
        _hex("0x1.ac2f7a366a1f0p-16"),
        _hex("-0x1.e14114ea86477p-18"),
        _hex("0x1.a450c4da4a9e2p-20"),
        _hex("-0x1.1e8853503d347p-22"),
        _hex("0x1.2c8e9d14b7afap-25"),
        _hex("-0x1.d5981b4e33abfp-29"),
        _hex("0x1.018b6b2ef614dp-32"),
        _hex("-0x1.61f1cde348137p-37"),
        _hex("0x1.ca6d0f8fce8a1p-43"),
    ),
    "ln2": (
        _hex("0x1.62e42fefa39efp-1"),
        _hex("0x1.abc9e3b39803fp-56"),
    ),
    "log2e": (
        _hex("0x1.71547652b82fep+0"),
        _hex("0x1.777d0ffda0d24p-56"),
    ),
    "pi": (
        _hex("0x1.921fb54442d18p+1"),
        _hex("0x1.1a62633145c07p-53"),
    ),
    "half_pi": (
        _hex("0x1.921fb54442d18p+0"),
        _hex("0x1.1a62633145c07p-54"),
        _hex("-0x1.f1976b7ed8fbcp-110"),
    ),
    "two_over_pi": (_hex("0x1.45f306dc9c883p-1"),),
    "two_thirds": (
        _hex("0x1.5555555555555p-1"),
        _hex("0x1.5555555555555p-55"),
    ),
}

# 64 zeros, then the bits of 2/pi: enough for the greatest double.
TWO_OVER_PI = (
    0x0000000000000000,
    0xA2F9836E4E441529,
    0xFC2757D1F534DDC0,
    0xDB6295993C439041,
    0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484,
    0xE99C7026B45F7E41,
    0x3991D639835339F4,
    0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F,
    0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
)
