"""jars.xml and jars.sha256 in, a CycloneDX bill of materials of the jars out: name, version, Maven address, SHA-256.

Jars inside pyspark come with that package, and are not listed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

xml, sums = map(Path, sys.argv[1:])
dependencies = ET.parse(xml).iter("dependency")  # noqa: S314 - a file of this repository
known = {f"{each.get('name')}-{each.get('rev')}.jar": each.attrib for each in dependencies}
components = []
for digest, path in (line.split() for line in sums.read_text(encoding="ascii").splitlines()):
    jar = known[path.rpartition("/")[2]]
    group, name, version = jar["org"], jar["name"], jar["rev"]
    address = PackageURL("maven", group, name, version)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
    part = Component(
        name=name, type=ComponentType.LIBRARY, bom_ref=path, group=group, version=version, purl=address, hashes=hashes
    )
    components.append(part)
sys.stdout.write(JsonV1Dot6(Bom(components=components)).output_as_string(indent=2))
