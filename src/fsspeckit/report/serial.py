"""Reports as JSON documents."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from fsspeckit.core.model import MergePlan, MergeResult
from fsspeckit.report.inspection import Inspection


def document(report: MergePlan | MergeResult | Inspection, target: str) -> dict[str, Any]:
    """All fields of a report, and the data set it describes."""
    if isinstance(report, Inspection):
        return {"target": target, **report.as_dict()}
    fields = {"target": target, **asdict(report)}
    if isinstance(report, MergePlan):
        return fields | {"target_count_after": report.target_count_after}
    return fields | {"total": report.total}


def to_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=True, default=str)
