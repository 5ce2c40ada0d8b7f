"""Numbers that came as text: pandas reads the same ones."""

import numpy as np
import pandas as pd
import pyarrow as pa

from discreet.data.number_parsing import parsed

TEXTS = [
    "1", " 2.5 ", "-3", "+4", "1.", ".5", "1e3", "1E-3", "-2.5e+2", "inf", "-Inf", "+infinity", "1e400",
    "1e-400", "0.1", "123456789012345678", "", " ", None, "nan", "NaN", "x", "1,5", "1 2", "--1", "1e", "e5",
    ".", "1_000", "0x10", "\u0661",
]  # fmt: skip


def test_as_pandas_reads_them() -> None:
    found = parsed(pa.chunked_array([TEXTS[:7], TEXTS[7:]]))
    expected = pd.to_numeric(pd.Series(TEXTS, dtype=object), errors="coerce").to_numpy(np.float64)
    np.testing.assert_array_equal(found, expected)
    assert parsed(pa.array([], pa.string())).shape == (0,)
    assert np.isnan(parsed(pa.array([None], pa.string()))).all()
