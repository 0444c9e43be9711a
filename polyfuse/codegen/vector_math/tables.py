"""The coefficients and constants of vector_math.

Each polynomial interpolates its function at Chebyshev's points of the interval given here (mpmath.chebyfit, 200 bits),
which is within a factor of two or so of the best one; its error there is the power of two beside it, absolute. The
tests compute them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.codegen.vector_math.builder import DOUBLE, SINGLE, Format

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Tables:
    """Coefficients for one format, lowest power first."""

    exp: tuple[float, ...]
    """(exp(r) - 1 - r) / r ** 2, of r from -0.3466 to 0.3466 (half of log 2): 2 ** -23.9, 2 ** -53.1."""
    log: tuple[float, ...]
    """(2 artanh(s) / s - 2) / z, of z = s ** 2 from 0 to 0.02944 (s = 3 - sqrt(8)): 2 ** -22.3, 2 ** -51.5."""
    erf: tuple[float, ...]
    """erf(x) / x - 1, of z = x ** 2 from 0 to 1: 2 ** -29.6, 2 ** -56.9."""
    erfc: tuple[float, ...]
    """log(erfc(1 + t)), of t from 0 to `one_from` - 1: 2 ** -25.8, 2 ** -51.6."""
    log_2_high: float
    """log 2, cut off so that its product with an exponent is exact."""
    log_2_low: float
    """log 2 minus `log_2_high`."""
    zero_below: float
    """exp of it is less than half of the smallest number."""
    inf_above: float
    """exp of it is more than the largest number."""
    one_from: float
    """From here on erf is 1, rounded."""


TABLES: dict[Format, Tables] = {
    SINGLE: Tables(
        exp=(
            0.5,
            0.16666576,
            0.041666556,
            0.008363178,
            0.0013926182,
        ),
        log=(
            0.66666687,
            0.39988777,
            0.29580045,
        ),
        erf=(
            0.12837917,
            -0.37612626,
            0.11283594,
            -0.026854211,
            0.0051890872,
            -0.00080168643,
            7.875875e-05,
        ),
        erfc=(
            -1.8496056,
            -2.6389678,
            -0.8431047,
            -0.04157574,
            0.010077808,
            -0.0020543009,
            0.00032023957,
            -3.296083e-05,
            1.6371514e-06,
        ),
        log_2_high=float.fromhex("0x1.62e4p-1"),
        log_2_low=1.4286068e-06,
        zero_below=-104.0,
        inf_above=89.0,
        one_from=4.0,
    ),
    DOUBLE: Tables(
        exp=(
            0.5000000000000001,
            0.16666666666666669,
            0.041666666666624136,
            0.008333333333330063,
            0.001388888891720967,
            0.00019841269863050506,
            2.4801521302241082e-05,
            2.7557268464831627e-06,
            2.7620085455018414e-07,
            2.510038319586702e-08,
        ),
        log=(
            0.666666666666667,
            0.3999999999989945,
            0.28571428626001427,
            0.22222211130560726,
            0.18182889433757515,
            0.15331711346672997,
            0.14616576421644387,
        ),
        erf=(
            0.12837916709551256,
            -0.37612638903183543,
            0.11283791670945006,
            -0.02686617064323777,
            0.0052239776071164225,
            -0.0008548325975389692,
            0.00012055294904839707,
            -1.492473690741966e-05,
            1.6447424703317362e-06,
            -1.6208483801871705e-07,
            1.3720064546777686e-08,
            -7.795898827002142e-10,
        ),
        erfc=(
            -1.8496055099332485,
            -2.6389675142347313,
            -0.8431072563607669,
            -0.0415610980121353,
            0.010033825160920953,
            -0.0019779016975242304,
            0.0002373204631306626,
            2.6279862858634217e-05,
            -2.7156334221864213e-05,
            9.595006509513527e-06,
            -2.033159780146731e-06,
            1.1028561509522453e-07,
            1.2585035591399704e-07,
            -7.014356561785236e-08,
            2.3570812642171107e-08,
            -5.9695484096523654e-09,
            1.1993313226526883e-09,
            -1.9306769041530837e-10,
            2.470337254501987e-11,
            -2.459764005017919e-12,
            1.837898289962346e-13,
            -9.691465054328285e-15,
            3.213950386575977e-16,
            -5.038175090820216e-18,
        ),
        log_2_high=float.fromhex("0x1.62e42feep-1"),
        log_2_low=1.9082149292705877e-10,
        zero_below=-746.0,
        inf_above=710.0,
        one_from=6.0,
    ),
}

LOG_OF_POWER: dict[Format, tuple[float, ...]] = {
    SINGLE: (
        0.40000015,
        0.28562236,
        0.23048232,
    ),
    DOUBLE: (
        0.4,
        0.28571428571429364,
        0.22222222221655907,
        0.181818183353876,
        0.15384594963074136,
        0.13334804663624336,
        0.11706237148816372,
        0.11723170160799075,
    ),
}
"""((2 artanh(s) / s - 2) / z - 2 / 3) / z, of z = s ** 2 from 0 to 0.02944: 2 ** -22.6, 2 ** -58.9."""

TWO_THIRDS: dict[Format, tuple[float, float]] = {
    SINGLE: (0.6666667, -1.9868216e-08),
    DOUBLE: (0.6666666666666666, 3.700743415417188e-17),
}
"""2 / 3 in two numbers."""
