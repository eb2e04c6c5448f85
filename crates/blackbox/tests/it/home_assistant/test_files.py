"""What Home Assistant's own check of integrations demands, as far as it can be run offline."""

import json
import os
from pathlib import Path
import re

INTEGRATION = Path(os.environ["AULOS_INTEGRATION"]) / "custom_components" / "aulos"
REQUIRED = {"domain", "name", "version", "documentation", "issue_tracker", "codeowners"}
KNOWN = REQUIRED | {
    "after_dependencies",
    "config_flow",
    "integration_type",
    "iot_class",
    "requirements",
    "zeroconf",
}


def load(name: str) -> dict:
    return json.loads((INTEGRATION / name).read_text())


def source() -> str:
    return "\n".join(one.read_text() for one in sorted(INTEGRATION.glob("*.py")))


def test_manifest() -> None:
    manifest = load("manifest.json")
    assert manifest.keys() >= REQUIRED
    assert manifest.keys() <= KNOWN
    assert list(manifest) == ["domain", "name", *sorted(set(manifest) - {"domain", "name"})]
    assert manifest["domain"] == INTEGRATION.name
    assert manifest["version"] == os.environ["AULOS_VERSION"]
    assert manifest["requirements"] == []
    assert manifest["iot_class"] == "local_push"
    assert all(one.endswith("._tcp.local.") for one in manifest["zeroconf"])
    hacs = json.loads((INTEGRATION.parents[1] / "hacs.json").read_text())
    assert hacs["name"] == manifest["name"]


def test_texts() -> None:
    strings = load("strings.json")
    assert strings == load("translations/en.json")
    text, config = source(), strings["config"]
    steps = set(re.findall(r"async_step_(\w+)", text)) - {"zeroconf", "reauth"}
    assert set(config["step"]) == steps
    assert set(strings["exceptions"]) == set(re.findall(r'translation_key="(\w+)"', text)) - set(
        strings["entity"]["sensor"]
    )
    sensors = set(re.findall(r'_meter\("(\w+)"', text))
    sensors |= set(re.findall(r'\bkey="(\w+)"', text)) | {"clients"}
    assert set(strings["entity"]["sensor"]) == sensors
    for reason in re.findall(r'reason="(\w+)"', text):
        assert reason in config["abort"], reason
    errors = set(re.findall(r'(?:return \w+, |else )"(\w+)"', text))
    assert errors == {"invalid_auth", "not_aulos", "cannot_connect"}
    assert errors <= set(config["error"]) & set(config["abort"])
