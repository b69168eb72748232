"""The entry of a release for the registry of deployments of differential privacy that OpenDP keeps, as YAML.

The registry (deployments-registry-data) asks in three tiers: what it is and for what; the variant, the unit of privacy
and its parameters; and how it was done. All that a bundle knows is filled in. What only the publisher knows (name, use,
region) comes from `publication.toml`, and says "not stated" where it is not there. A person reviews the draft before it
is sent. YAML is written in its block form, with texts in double quotes as JSON has them, which is what `read` reads.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from consilience.domain.declarations import Declaration
from consilience.errors import DeclarationError
from consilience.publication.metadata.facts import MARK, NOT_STATED, Facts

VARIANTS = {
    "epsilon": "Pure DP",
    "epsilon-delta": "Approximate DP",
    "rho": "Zero-concentrated DP",
}
SECTIONS = (
    "basic",
    "dp_variant",
    "privacy_loss",
    "deployment_model",
    "accounting",
    "implementation",
    "administrative",
)
SLUG = "url_slug"
"""The registry's own scripts read it from a line without quotes."""
_LINE = re.compile(r"( *)(?:(- )|([a-z_]+):(?: |$))(.*)")


def entry(facts: Facts) -> dict[str, Any]:
    """The entry as plain data. Of simulated noise it makes no promise: variant and parameters are left out."""
    sections: dict[str, Any] = {"basic": _basic(facts)}
    if facts.private:
        sections |= {"dp_variant": _variant(facts), "privacy_loss": _loss(facts)}
    sections |= {
        "deployment_model": _model(facts),
        "accounting": _accounting(),
        "implementation": _implementation(facts),
        "administrative": _administrative(facts),
    }
    basic = sections["basic"]
    words = [basic["name"], "-".join(basic["data_curators"]), basic["publication_date"][:4]]
    slug = "_".join(re.sub(r"\W+", "_", word.lower()) for word in words).replace("_", "-")
    complete = facts.private and facts.privacy.spent is not None and NOT_STATED not in _flat(basic)
    return {"url_slug": slug, "status": "Draft", "tier": 3 if complete else 1, "deployment": sections}


def _basic(facts: Facts) -> dict[str, Any]:
    told = facts.publication
    return {
        "name": facts.title,
        "data_curators": [facts.publisher],
        "intended_use": told.intended_use or NOT_STATED,
        "data_product_type": "Summary statistics",
        "data_product_region": told.region.name if told.region is not None else NOT_STATED,
        "description": facts.description,
        "publication_date": facts.published[:10],
    }


def _variant(facts: Facts) -> dict[str, Any]:
    privacy = facts.privacy
    custom = "failure_delta" in (privacy.spent or {})
    named = {} if privacy.spent_unit is None else {"variant_name": "Custom" if custom else VARIANTS[privacy.spent_unit]}
    return named | {
        "data_domain": (
            "All tables whose columns hold the values that the published domain file declares "
            f"({len(facts.domain.counted_names)} attributes). The domain was declared and is public"
            + (", but for what was found with privacy from the same budget." if _discovered(facts) else ".")
        ),
        "unprotected_quantities": (
            "; ".join(privacy.public_facts) if privacy.public_facts else "None that the measurements rely on."
        ),
    }


def _discovered(facts: Facts) -> bool:
    return any("found" in note or "discover" in note for note in facts.privacy.notes)


def _loss(facts: Facts) -> dict[str, Any]:
    privacy = facts.privacy
    change = "added or removed" if privacy.neighbours == "add-remove" else "replaced by another"
    unit = "row of the table" if privacy.unit == "row" else f"unit ({privacy.unit})"
    spent = {name: float(text) for name, text in (privacy.spent or {}).items() if name in ("epsilon", "delta", "rho")}
    return {
        "privacy_unit": unit,
        "privacy_unit_details": f"Two tables are neighbours when one {unit} is {change}.",
        **({"privacy_parameters": spent} if spent else {}),
        "privacy_parameters_details": privacy.describe(),
    }


def _model(facts: Facts) -> dict[str, Any]:
    return {
        "model_name": "Central",
        "actors": (
            f"Curator: {facts.publisher}, who holds the table and adds the noise before anything leaves it. Readers: "
            "anyone, with any computing power and any other data."
        ),
        "release_type": "One release",
        "release_type_details": "A ledger beside the data adds up what all releases of the same data spend.",
        "data_source_type": "Static",
        "access_type": "Non-interactive",
    }


def _accounting() -> dict[str, Any]:
    return {
        "post_processing": (
            "One consistent estimate is fitted to the noisy measurements; tables, error bars, models and this file are "
            "made of it and of public facts. Nothing looks at the confidential table again."
        ),
        "composition": (
            "Sequential: the losses of all measurements add up to the stated budget. What is measured together is "
            "charged by its common sensitivity, of which measurements of disjoint records are a case."
        ),
    }


def _implementation(facts: Facts) -> dict[str, Any]:
    noise = f"{' and '.join(facts.laws)} noise" if facts.laws else "no noise that this file knows of"
    plan = f" The plan was {facts.plan!r}." if facts.plan else ""
    own = str(facts.manifest["provenance"].get("tool", "")) == "consilience"
    exact = (
        " Whole multiples of a public lattice are released, with exact samplers and the operating system's randomness; "
        "no floating-point number is noised."
        if own and facts.private
        else ""
    )
    method = facts.manifest["method"]
    return {
        "preprocessing_and_hyperparameter_tuning": (
            "Records are coded by the published domain file: values that it does not declare are dropped or become a "
            "declared value. Whatever was looked at before the measurement, this file does not know of."
        ),
        "mechanisms": f"Counts with {noise}.{plan}{exact} Made with {facts.tool}.",
        "justification": str(method.get("reason", f"The estimate was fitted by {method.get('method')!r}.")),
    }


def _administrative(facts: Facts) -> dict[str, Any]:
    told = facts.publication
    named = [each.url for each in (told.publisher, told.contact) if each is not None and each.url is not None]
    return {
        **({"sources": "\n".join(named)} if named else {}),
        "notes": f"Drafted from the release bundle. {facts.promise}",
        "registry_authors": [facts.publisher],
    }


def _flat(value: Any) -> Iterator[Any]:
    """All values within plain data."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _flat(each)
    elif isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield value


def write(told: Mapping[str, Any]) -> str:
    """Plain data of mappings, lists of texts, texts and numbers as YAML.

    >>> print(write({"tier": 1, "deployment": {"names": ["a", "b"]}}), end="")
    tier: 1
    deployment:
      names:
        - "a"
        - "b"
    """
    return "".join(f"{line}\n" for line in _lines(told, ""))


def _lines(told: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in told.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {json.dumps(each, ensure_ascii=False)}" for each in value)
        else:
            yield f"{indent}{key}: {value if key == SLUG else _scalar(value)}"


def _scalar(value: Any) -> str:
    """JSON, which YAML reads; numbers with a point, because YAML 1.1 takes 1e-9 for a text."""
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)


def read(text: str) -> dict[str, Any]:
    """What `write` wrote, and nothing else of YAML.

    >>> read(write({"tier": 1, "deployment": {"names": ["a", "b"]}}))
    {'tier': 1, 'deployment': {'names': ['a', 'b']}}
    """
    whole: dict[str, Any] = {}
    open_ones: list[tuple[int, dict[str, Any]]] = [(0, whole)]
    last: tuple[dict[str, Any], str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if found is None:
            raise DeclarationError(f"line {number} is not as a deployment entry is written")
        depth, key, rest = len(found[1]) // 2, found[3], found[4]
        if found[2]:
            if last is None:
                raise DeclarationError(f"line {number} lists something that nothing was said of")
            mapping, name = last
            mapping[name] = [*(mapping[name] or []), _value(rest, number)]
            continue
        while open_ones[-1][0] > depth:
            open_ones.pop()
        if open_ones[-1][0] != depth:
            raise DeclarationError(f"line {number} stands deeper than what it belongs to")
        mapping = open_ones[-1][1]
        mapping[key] = {} if not rest else rest if key == SLUG else _value(rest, number)
        last = (mapping, key)
        if not rest:
            open_ones.append((depth + 1, mapping[key]))
    return whole


def _value(text: str, number: int) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise DeclarationError(f"line {number} is not as a deployment entry is written") from None


def check(text: str, facts: Facts) -> None:
    """Refuse an entry that the registry would not take, or that promises something else than the release."""
    declared = Declaration(read(text), "deployment.yaml")
    declared.text("url_slug")
    if declared.text("status") != "Draft" or declared.integer("tier") not in (1, 2, 3):
        declared.refuse("'status' must be \"Draft\", and 'tier' 1, 2 or 3")
    sections = declared.table("deployment")
    declared.close()
    for section in sections.keys():
        if section not in SECTIONS:
            sections.refuse(f"{section!r} is no section of the registry; there is: {', '.join(SECTIONS)}")
    basic = sections.table("basic")
    for key in ("intended_use", "data_product_type", "data_product_region", "description", "publication_date"):
        basic.text(key)
    if not basic.texts("data_curators"):
        basic.refuse("'data_curators' names nobody")
    if facts.private == basic.text("name").startswith(MARK):
        basic.refuse(f"the name must begin with {MARK!r} where the noise was simulated, and only there")
    spent = {name: float(text) for name, text in (facts.privacy.spent or {}).items() if name != "failure_delta"}
    said = sections.table("privacy_loss") if "privacy_loss" in sections else None
    parameters = said.raw("privacy_parameters") if said is not None and "privacy_parameters" in said else {}
    if parameters != (spent if facts.private else {}):
        sections.refuse(f"it says that {parameters} was spent, and the release says {spent if facts.private else {}}")
