"""Image pipelines in float32, stage after stage. Written from the algorithms, in our own words.

Every stage is computed where the next ones need it: an image of M × N pixels gives a result without its border.
"""

# ruff: noqa: F821

import numpy as np

import polyfuse as pf

TWELFTH = 1.0 / 12.0
K0, K1, K2 = 1.0 / 16.0, 4.0 / 16.0, 6.0 / 16.0


@pf.nest
def harris(image: "f32[M, N]", corners: "f32[M - 4, N - 4]"):
    """Corners by Harris and Stephens (1988): gradients, their products, sums over 3 × 3, determinant and trace."""
    Ix = np.empty((M - 2, N - 2), np.float32)
    Iy = np.empty((M - 2, N - 2), np.float32)
    Ixx = np.empty((M - 2, N - 2), np.float32)
    Ixy = np.empty((M - 2, N - 2), np.float32)
    Iyy = np.empty((M - 2, N - 2), np.float32)
    Sxx = np.empty((M - 4, N - 4), np.float32)
    Sxy = np.empty((M - 4, N - 4), np.float32)
    Syy = np.empty((M - 4, N - 4), np.float32)
    trace = np.empty((M - 4, N - 4), np.float32)
    for i in range(M - 2):
        for j in range(N - 2):
            Ix[i, j] = TWELFTH * (
                image[i, j + 2] - image[i, j]
                + 2.0 * (image[i + 1, j + 2] - image[i + 1, j])
                + image[i + 2, j + 2] - image[i + 2, j]
            )  # fmt: skip
    for i in range(M - 2):
        for j in range(N - 2):
            Iy[i, j] = TWELFTH * (
                image[i + 2, j] - image[i, j]
                + 2.0 * (image[i + 2, j + 1] - image[i, j + 1])
                + image[i + 2, j + 2] - image[i, j + 2]
            )  # fmt: skip
    for i in range(M - 2):
        for j in range(N - 2):
            Ixx[i, j] = Ix[i, j] * Ix[i, j]
    for i in range(M - 2):
        for j in range(N - 2):
            Ixy[i, j] = Ix[i, j] * Iy[i, j]
    for i in range(M - 2):
        for j in range(N - 2):
            Iyy[i, j] = Iy[i, j] * Iy[i, j]
    for i in range(M - 4):
        for j in range(N - 4):
            Sxx[i, j] = (
                Ixx[i, j] + Ixx[i, j + 1] + Ixx[i, j + 2]
                + Ixx[i + 1, j] + Ixx[i + 1, j + 1] + Ixx[i + 1, j + 2]
                + Ixx[i + 2, j] + Ixx[i + 2, j + 1] + Ixx[i + 2, j + 2]
            )  # fmt: skip
    for i in range(M - 4):
        for j in range(N - 4):
            Sxy[i, j] = (
                Ixy[i, j] + Ixy[i, j + 1] + Ixy[i, j + 2]
                + Ixy[i + 1, j] + Ixy[i + 1, j + 1] + Ixy[i + 1, j + 2]
                + Ixy[i + 2, j] + Ixy[i + 2, j + 1] + Ixy[i + 2, j + 2]
            )  # fmt: skip
    for i in range(M - 4):
        for j in range(N - 4):
            Syy[i, j] = (
                Iyy[i, j] + Iyy[i, j + 1] + Iyy[i, j + 2]
                + Iyy[i + 1, j] + Iyy[i + 1, j + 1] + Iyy[i + 1, j + 2]
                + Iyy[i + 2, j] + Iyy[i + 2, j + 1] + Iyy[i + 2, j + 2]
            )  # fmt: skip
    for i in range(M - 4):
        for j in range(N - 4):
            trace[i, j] = Sxx[i, j] + Syy[i, j]
    for i in range(M - 4):
        for j in range(N - 4):
            corners[i, j] = Sxx[i, j] * Syy[i, j] - Sxy[i, j] * Sxy[i, j] - 0.04 * trace[i, j] * trace[i, j]


@pf.nest
def unsharp(weight: "f32", threshold: "f32", image: "f32[C, M, N]", sharp: "f32[C, M - 4, N - 4]"):
    """Unsharp mask: what a blur takes away is added, where it is more than a threshold."""
    rows = np.empty((C, M - 4, N), np.float32)
    blurred = np.empty((C, M - 4, N - 4), np.float32)
    sharpened = np.empty((C, M - 4, N - 4), np.float32)
    for c in range(C):
        for i in range(M - 4):
            for j in range(N):
                rows[c, i, j] = (
                    K0 * image[c, i, j] + K1 * image[c, i + 1, j] + K2 * image[c, i + 2, j]
                    + K1 * image[c, i + 3, j] + K0 * image[c, i + 4, j]
                )  # fmt: skip
    for c in range(C):
        for i in range(M - 4):
            for j in range(N - 4):
                blurred[c, i, j] = (
                    K0 * rows[c, i, j] + K1 * rows[c, i, j + 1] + K2 * rows[c, i, j + 2]
                    + K1 * rows[c, i, j + 3] + K0 * rows[c, i, j + 4]
                )  # fmt: skip
    for c in range(C):
        for i in range(M - 4):
            for j in range(N - 4):
                sharpened[c, i, j] = (1.0 + weight) * image[c, i + 2, j + 2] - weight * blurred[c, i, j]
    for c in range(C):
        for i in range(M - 4):
            for j in range(N - 4):
                sharp[c, i, j] = (
                    image[c, i + 2, j + 2]
                    if abs(image[c, i + 2, j + 2] - blurred[c, i, j]) < threshold
                    else sharpened[c, i, j]
                )


@pf.nest
def blurs(image: "f32[M, N]", blurred: "f32[M - 8, N - 8]"):
    """Two blurs of five pixels, each along the columns and then along the rows."""
    first = np.empty((M - 4, N), np.float32)
    second = np.empty((M - 4, N - 4), np.float32)
    third = np.empty((M - 8, N - 4), np.float32)
    for i in range(M - 4):
        for j in range(N):
            first[i, j] = (
                K0 * image[i, j] + K1 * image[i + 1, j] + K2 * image[i + 2, j]
                + K1 * image[i + 3, j] + K0 * image[i + 4, j]
            )  # fmt: skip
    for i in range(M - 4):
        for j in range(N - 4):
            second[i, j] = (
                K0 * first[i, j] + K1 * first[i, j + 1] + K2 * first[i, j + 2]
                + K1 * first[i, j + 3] + K0 * first[i, j + 4]
            )  # fmt: skip
    for i in range(M - 8):
        for j in range(N - 4):
            third[i, j] = (
                K0 * second[i, j] + K1 * second[i + 1, j] + K2 * second[i + 2, j]
                + K1 * second[i + 3, j] + K0 * second[i + 4, j]
            )  # fmt: skip
    for i in range(M - 8):
        for j in range(N - 8):
            blurred[i, j] = (
                K0 * third[i, j] + K1 * third[i, j + 1] + K2 * third[i, j + 2]
                + K1 * third[i, j + 3] + K0 * third[i, j + 4]
            )  # fmt: skip


@pf.nest
def pyramid(image: "f32[2 * M + 4, 2 * N + 4]", coarse: "f32[M, N]", detail: "f32[2 * M - 2, 2 * N - 2]"):
    """One level of Burt and Adelson's pyramid (1983): every other pixel of a blur, and what its interpolation lacks."""
    rows = np.empty((M, 2 * N + 4), np.float32)
    down = np.empty((M, N), np.float32)
    for i in range(M):
        for j in range(2 * N + 4):
            rows[i, j] = (
                K0 * image[2 * i, j] + K1 * image[2 * i + 1, j] + K2 * image[2 * i + 2, j]
                + K1 * image[2 * i + 3, j] + K0 * image[2 * i + 4, j]
            )  # fmt: skip
    for i in range(M):
        for j in range(N):
            down[i, j] = (
                K0 * rows[i, 2 * j] + K1 * rows[i, 2 * j + 1] + K2 * rows[i, 2 * j + 2]
                + K1 * rows[i, 2 * j + 3] + K0 * rows[i, 2 * j + 4]
            )  # fmt: skip
    for i in range(M):
        for j in range(N):
            coarse[i, j] = down[i, j]
    for i in range(2 * M - 2):
        for j in range(2 * N - 2):
            detail[i, j] = image[i + 2, j + 2] - 0.25 * (
                down[i // 2, j // 2] + down[(i + 1) // 2, j // 2]
                + down[i // 2, (j + 1) // 2] + down[(i + 1) // 2, (j + 1) // 2]
            )  # fmt: skip
