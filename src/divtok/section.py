"""What all sections of a config share, those that an engine brings along included.

An unknown key is an error, and so is a truth value where a number or a text belongs.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class Section(BaseModel):
    """One section of a config; its values never change."""

    # A value may be a secret that was put in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_values(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads `yes` and `on` as true, which would then pass for the number 1."""
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and field.annotation is not bool:
            raise PydanticCustomError("truth_value", "input should not be true or false")
        return value
