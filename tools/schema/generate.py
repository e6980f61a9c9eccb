#!/usr/bin/env python3
"""Writes crates/schema/data/types.txt and crates/schema/data/descriptions.lz4.

Facts come from two places that describe the same release:

- the Go declarations of the API types (git repositories kubernetes/api, apimachinery, apiextensions-apiserver and
  kube-aggregator): field order, JSON names, omitempty, pointers, embedded structs, protobuf numbers, list and map
  types, merge keys, defaults;
- the OpenAPI definitions in the PyPI wheel `kubernetes-validate`: which fields are required, unions, descriptions.

Where both speak (field sets, list types, merge keys) they are compared, and a difference ends the run: the table then
needs a person to look.

    pip download --no-deps kubernetes-validate && unzip -d wheel kubernetes_validate-*.whl
    ./generate.py --api DIR --apimachinery DIR --apiextensions DIR --aggregator DIR --ref release-1.36 \\
        --definitions wheel/kubernetes_validate/kubernetes-json-schema/v1.36.0-local/_definitions.json \\
        --out ../../crates/schema/data

`pip install lz4` is needed for the descriptions. The form of types.txt is described in crates/schema/src/load.rs.
"""

import argparse
import json
import re
import struct
import subprocess
import sys

# What kube-apiserver 1.36 serves by default, the webhook and discovery payloads, and the machinery types.
# (repository, directory, group); the version is the directory's last element.
PACKAGES = [
    ("apimachinery", "pkg/apis/meta/v1", "meta.k8s.io"),
    ("api", "core/v1", ""),
    ("api", "admission/v1", "admission.k8s.io"),
    ("api", "admissionregistration/v1", "admissionregistration.k8s.io"),
    ("api", "apidiscovery/v2", "apidiscovery.k8s.io"),
    ("api", "apps/v1", "apps"),
    ("api", "authentication/v1", "authentication.k8s.io"),
    ("api", "authorization/v1", "authorization.k8s.io"),
    ("api", "autoscaling/v1", "autoscaling"),
    ("api", "autoscaling/v2", "autoscaling"),
    ("api", "batch/v1", "batch"),
    ("api", "certificates/v1", "certificates.k8s.io"),
    ("api", "coordination/v1", "coordination.k8s.io"),
    ("api", "discovery/v1", "discovery.k8s.io"),
    ("api", "events/v1", "events.k8s.io"),
    ("api", "flowcontrol/v1", "flowcontrol.apiserver.k8s.io"),
    ("api", "networking/v1", "networking.k8s.io"),
    ("api", "node/v1", "node.k8s.io"),
    ("api", "policy/v1", "policy"),
    ("api", "rbac/v1", "rbac.authorization.k8s.io"),
    ("api", "resource/v1", "resource.k8s.io"),
    ("api", "scheduling/v1", "scheduling.k8s.io"),
    ("api", "storage/v1", "storage.k8s.io"),
    ("apiextensions", "pkg/apis/apiextensions/v1", "apiextensions.k8s.io"),
    ("aggregator", "pkg/apis/apiregistration/v1", "apiregistration.k8s.io"),
]

DEFINITION_PREFIX = {
    "apimachinery": "io.k8s.apimachinery.",
    "api": "io.k8s.api.",
    "apiextensions": "io.k8s.apiextensions-apiserver.",
    "aggregator": "io.k8s.kube-aggregator.",
}

# Types with JSON of their own. The code is the scalar's in types.txt.
SPECIAL = {
    "resource.Quantity": "q",
    "intstr.IntOrString": "x",
    "metav1.Time": "t",
    "metav1.MicroTime": "u",
    "metav1.FieldsV1": "v",
    "runtime.RawExtension": "r",
    "apiextensionsv1.JSON": "j",
    "apiextensionsv1.JSONSchemaPropsOrArray": "ca",
    "apiextensionsv1.JSONSchemaPropsOrBool": "cb",
    "apiextensionsv1.JSONSchemaPropsOrStringArray": "cs",
}

BASIC = {
    "string": "s", "bool": "b", "int32": "i", "int64": "l", "int": "l", "float64": "f", "uint8": "i", "byte": "i",
}

# Structs the machinery keeps to itself: never in a request or an answer.
IGNORED = {"metav1.InternalEvent", "metav1.Timestamp", "metav1.TypeMeta", "metav1.Time", "metav1.MicroTime",
           "metav1.Duration", "metav1.FieldsV1"}

class Package:
    def __init__(self, repository, directory, group):
        self.repository, self.directory, self.group = repository, directory, group
        parts = directory.split("/")
        self.version = parts[-1]
        self.name = "metav1" if parts[-2] == "meta" else parts[-2] + parts[-1]
        self.prefix = DEFINITION_PREFIX[repository] + directory.replace("/", ".") + "."
        self.imports, self.structs, self.named, self.constants = {}, {}, {}, {}
        # Go types marked +enum, and the values of every typed string constant by type.
        self.enums, self.values = set(), {}


class Field:
    pass


def show(repo, ref, path):
    return subprocess.run(["git", "-C", repo, "show", f"{ref}:{path}"], check=True, capture_output=True, text=True).stdout


def go_files(repo, ref, directory):
    listing = subprocess.run(["git", "-C", repo, "ls-tree", "--name-only", ref, directory + "/"],
                             check=True, capture_output=True, text=True).stdout.split()
    for path in listing:
        name = path.rsplit("/", 1)[-1]
        if name.endswith(".go") and not name.startswith("zz_") and not name.endswith("_test.go") \
                and "swagger" not in name and not name.endswith(".pb.go") and "fuzz" not in name:
            yield path


IMPORT = re.compile(r'^\s*(?:import\s+)?(?:(\w+)\s+)?"([\w./-]+)"\s*$')
FIELD = re.compile(r'^\s+(?:(\w+)\s+)?([\w.*\[\]]+(?:interface\{\})?)\s+`([^`]*)`')
TAG = re.compile(r'(\w+):"((?:[^"\\]|\\.)*)"')
TYPED = re.compile(r'^\s*(?:const\s+)?\w+\s+(\w+)\s+=\s+"([^"]*)"|^\s*(?:const\s+)?\w+\s+=\s+(\w+)\((?:"([^"]*)"|([\w.]+))\)')
CONSTANT = re.compile(r'^\s+(\w+)\s+(?:[\w.]+\s+)?=\s+("[^"]*"|-?\d+)')


def parse(package, text):
    markers, current = [], None
    in_import = False
    for line in text.splitlines():
        if current is None:
            if line.startswith("import ("):
                in_import = True
                continue
            if in_import and line.startswith(")"):
                in_import = False
            if in_import or line.startswith("import "):
                found = IMPORT.match(line)
                if found:
                    path = found.group(2)
                    alias = found.group(1) or path.rsplit("/", 1)[-1]
                    package.imports[alias] = path
                continue
            found = CONSTANT.match(line)
            if found:
                package.constants[found.group(1)] = found.group(2)
            found = TYPED.match(line)
            if found:
                of, value = (found.group(1) or found.group(3)), (found.group(2) or found.group(4) or "")
                # A constant may be another package's: the reference is looked up once all are read.
                package.values.setdefault(of, []).append(("=" + found.group(5)) if found.group(5) else value)
            if line.startswith("//"):
                markers.append(line[2:].strip())
                continue
            found = re.match(r"^type (\w+) struct\s*\{\s*\}$", line)
            if found:
                package.structs[found.group(1)] = {"name": found.group(1), "markers": markers, "fields": []}
                markers = []
                continue
            found = re.match(r"^type (\w+) struct \{\s*$", line)
            if found:
                current = {"name": found.group(1), "markers": markers, "fields": []}
                markers = []
                continue
            found = re.match(r"^type (\w+) (=\s*)?([\w.*\[\]]+)\s*$", line)
            if found:
                package.named[found.group(1)] = found.group(3)
                if "+enum" in markers:
                    package.enums.add(found.group(1))
            if line.strip() != "":
                markers = []
            continue
        if line.startswith("}"):
            package.structs[current["name"]] = current
            current, markers = None, []
            continue
        stripped = line.strip()
        if stripped.startswith("//"):
            markers.append(stripped[2:].strip())
            continue
        found = FIELD.match(line)
        if found:
            tags = dict(TAG.findall(found.group(3)))
            current["fields"].append((found.group(1), found.group(2), tags, markers))
            markers = []
        elif stripped:
            if "`" in stripped or not stripped.startswith("sync"):
                print("unread:", package.directory, current["name"], stripped, file=sys.stderr)
            markers = []


class Table:
    def __init__(self, packages, definitions):
        self.packages = packages
        self.by_path = {}
        for p in packages:
            root = {"apimachinery": "k8s.io/apimachinery/", "api": "k8s.io/api/",
                    "apiextensions": "k8s.io/apiextensions-apiserver/", "aggregator": "k8s.io/kube-aggregator/"}
            self.by_path[root[p.repository] + p.directory] = p
        self.definitions = definitions
        self.index = {}
        self.order = []
        for p in packages:
            for name in p.structs:
                if p.name + "." + name in SPECIAL or p.name + "." + name in IGNORED:
                    continue
                fields = p.structs[name]["fields"]
                if not any("json" in tags for _, _, tags, _ in fields) and fields:
                    continue
                self.index[(p.name, name)] = len(self.order)
                self.order.append((p, name))

    def resolve(self, package, text):
        """A Go type: (code in types.txt, Go's own text for it, whether it names a type that is no struct)."""
        if text.startswith("*"):
            code, go, named = self.resolve(package, text[1:])
            return "*" + code, "*" + go, named
        if text == "interface{}":
            return "j", text, False
        if text == "[]byte":
            return "y", "[]uint8", False
        if text.startswith("[]"):
            code, go, named = self.resolve(package, text[2:])
            return "[" + code, "[]" + go, named
        found = re.match(r"^map\[([\w.]+)\](.*)$", text)
        if found:
            code, go, named = self.resolve(package, found.group(2))
            _, key, key_named = self.resolve(package, found.group(1))
            return "{" + code, f"map[{key}]{go}", named or key_named
        if text in BASIC:
            return BASIC[text], {"byte": "uint8"}.get(text, text), text in ("int", "byte", "uint8")
        if "." in text:
            alias, name = text.split(".")
            path = package.imports[alias]
            short = path.rsplit("/", 1)[-1]
            if path.endswith("apimachinery/pkg/types"):
                return "s", "types." + name, True
            if short in ("resource", "intstr", "runtime"):
                return SPECIAL[f"{short}.{name}"], f"{short}.{name}", False
            return self.resolve(self.by_path[path], name)
        qualified = f"{package.name}.{text}"
        go = f"{package.version}.{text}"
        if qualified in SPECIAL:
            return SPECIAL[qualified], go, False
        if text in package.structs:
            return "#" + str(self.index[(package.name, text)]), go, False
        if text in package.named:
            underlying = package.named[text]
            code, _, _ = self.resolve(package, underlying)
            if code.startswith("["):
                # A named list is a message of its own in protobuf.
                code = "w" + code
            return code, go, True
        raise SystemExit(f"unknown type {text} in {package.directory}")

    def struct(self, package, name):
        parsed = package.structs[name]
        definition = package.prefix + name
        openapi = self.definitions.get(definition)
        flags = ""
        if any(m == "+structType=atomic" for m in parsed["markers"]):
            flags += "A"
        lines = []
        seen = set()
        for go_name, go_type, tags, markers in parsed["fields"]:
            json_tag = tags.get("json", "")
            options = json_tag.split(",")
            number = 0
            if "protobuf" in tags and tags["protobuf"] != "-":
                number = int(tags["protobuf"].split(",")[1])
            if "inline" in options or (json_tag.startswith(",") and go_name is None):
                if go_type.endswith("TypeMeta"):
                    lines.append("kind\ts\t\to")
                    lines.append("apiVersion\ts\t\to")
                    seen |= {"kind", "apiVersion"}
                    continue
                code, _, _ = self.resolve(package, go_type)
                lines.append(f"+\t{code}\t{number or ''}\t")
                seen |= self.names(package, go_type)
                continue
            json_name = options[0]
            if not json_name or json_name == "-":
                continue
            seen.add(json_name)
            code, go, named = self.resolve(package, go_type)
            lines.append(self.field(package, name, json_name, code, go, named, number, options, tags, go_type,
                                    markers, openapi))
        if openapi is not None and "properties" in openapi:
            missing = set(openapi["properties"]) ^ seen
            if missing:
                raise SystemExit(f"{definition}: fields differ from OpenAPI: {missing}")
            if ("x-kubernetes-map-type" in openapi) != ("A" in flags):
                raise SystemExit(f"{definition}: struct type differs from OpenAPI")
        extra = ""
        if openapi is not None and "x-kubernetes-unions" in openapi:
            extra = "\t" + json.dumps(openapi["x-kubernetes-unions"], separators=(",", ":"))
        head = f"S\t{package.version}.{name}\t{definition}\t{flags}{extra}"
        return [head] + lines

    def names(self, package, go_type):
        if "." in go_type:
            alias, name = go_type.split(".")
            package = self.by_path[package.imports[alias]]
            go_type = name
        out = set()
        for go_name, inner, tags, _ in package.structs[go_type]["fields"]:
            options = tags.get("json", "").split(",")
            if "inline" in options:
                out |= self.names(package, inner)
            elif options[0]:
                out.add(options[0])
        return out

    def enum(self, package, go_type):
        """The values of a type marked +enum, also as a list's items."""
        go_type = re.sub(r"map\[[^\]]*\]", "", go_type).lstrip("*[]")
        if "." in go_type:
            alias, go_type = go_type.split(".")
            package = self.by_path.get(package.imports[alias])
        if package is None or go_type not in package.enums:
            return []
        return sorted({self.constant(package, v) for v in package.values.get(go_type, [])})

    def constant(self, package, value):
        if not value.startswith("="):
            return value
        alias, _, name = value[1:].rpartition(".")
        package = self.by_path[package.imports[alias]] if alias else package
        return json.loads(package.constants[name])

    def field(self, package, struct_name, name, code, go, named, number, options, tags, tags_type, markers, openapi):
        marker = {}
        for m in markers:
            if m.startswith("+"):
                key, _, value = m[1:].partition("=")
                marker.setdefault(key, []).append(value)
        flags = ""
        flags += "o" if "omitempty" in options else ""
        flags += "z" if "omitzero" in options else ""
        list_type = marker.get("listType", [""])[0]
        keys = marker.get("listMapKey", [])
        if list_type and not code.lstrip("*").startswith(("[", "w", "y")):
            raise SystemExit(f"{struct_name}.{name}: list type on {code}")
        flags += {"set": "S", "map": "M", "atomic": "L"}.get(list_type, "")
        map_type = marker.get("mapType", marker.get("structType", [""]))[0]
        flags += {"atomic": "A", "granular": "G"}.get(map_type, "")
        strategy = tags.get("patchStrategy", "").split(",")
        merge_key = tags.get("patchMergeKey", "")
        flags += "m" if "merge" in strategy else ""
        flags += "p" if "replace" in strategy else ""
        flags += "k" if "retainKeys" in strategy else ""
        extras = []
        if keys:
            extras.append("keys=" + ",".join(keys))
        if merge_key:
            extras.append("merge=" + merge_key)
        if named:
            extras.append("go=" + go.lstrip("*"))
        values = self.enum(package, tags_type)
        if values:
            extras.append("enum=" + ",".join(values))
        default = marker.get("default", [""])[0]
        if default.startswith("ref("):
            constant = default[4:-1].rsplit(".", 1)[-1]
            default = package.constants.get(constant, "")
            if not default:
                raise SystemExit(f"default {marker['default']} of {struct_name}.{name} is not known")
        if default:
            extras.append("default=" + json.dumps(json.loads(default), separators=(",", ":")))
        if openapi is not None:
            described = openapi["properties"][name]
            flags += "r" if name in openapi.get("required", []) else ""
            self.compare(f"{struct_name}.{name}", described, list_type, keys, map_type, strategy, merge_key, marker)
        elif "omitempty" not in options and "optional" not in marker:
            flags += "r"
        return f"{name}\t{code}\t{number or ''}\t{flags}" + ("\t" + "\t".join(extras) if extras else "")

    def compare(self, where, described, list_type, keys, map_type, strategy, merge_key, marker):
        want = {
            "x-kubernetes-list-type": list_type or None,
            "x-kubernetes-list-map-keys": keys or None,
            "x-kubernetes-map-type": map_type or None,
            "x-kubernetes-patch-strategy": ",".join(strategy) or None,
            "x-kubernetes-patch-merge-key": merge_key or None,
        }
        for key, value in want.items():
            if described.get(key) != value:
                print(f"note: {where}: {key} is {described.get(key)} in OpenAPI, {value} in Go", file=sys.stderr)

    def kinds(self):
        out = []
        for index, (package, name) in enumerate(self.order):
            # WatchEvent is registered as a kind though it carries no TypeMeta.
            if name == "WatchEvent" or any(t.endswith("TypeMeta") for _, t, _, _ in package.structs[name]["fields"]):
                out.append(f"K\t{package.group}\t{package.version}\t{name}\t{index}")
        return out


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("api", "apimachinery", "apiextensions", "aggregator", "ref", "definitions", "out"):
        arguments.add_argument("--" + name, required=True)
    arguments = arguments.parse_args()
    with open(arguments.definitions) as f:
        definitions = json.load(f)["$defs"]

    packages = [Package(*p) for p in PACKAGES]
    for package in packages:
        repo = getattr(arguments, package.repository)
        for path in go_files(repo, arguments.ref, package.directory):
            parse(package, show(repo, arguments.ref, path))

    table = Table(packages, definitions)
    lines = []
    for package, name in table.order:
        lines += table.struct(package, name)
    lines += table.kinds()
    with open(f"{arguments.out}/types.txt", "w") as f:
        f.write("# Written by tools/schema/generate.py. Do not edit.\n")
        f.write("\n".join(line.rstrip("\t") for line in lines) + "\n")
    write_descriptions(table, definitions, f"{arguments.out}/descriptions.lz4")


def write_descriptions(table, definitions, path):
    """One block per definition: its name, its own description, then `field<TAB>description` lines; a NUL ends a block."""
    import lz4.block
    blocks = []
    names = [p.prefix + n for p, n in table.order]
    names += ["io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
              "io.k8s.apimachinery.pkg.runtime.RawExtension"]
    names += [n for n in definitions if n not in set(names)]
    for name in names:
        openapi = definitions.get(name)
        if openapi is None:
            continue
        # A newline inside a description is U+000B, so that one line is one field.
        text = [name + "\t" + openapi.get("description", "").replace("\n", "\v")]
        for field, described in openapi.get("properties", {}).items():
            if described.get("description"):
                text.append(field + "\t" + described["description"].replace("\n", "\v"))
        blocks.append("\n".join(text))
    raw = "\0".join(blocks).encode()
    packed = lz4.block.compress(raw, mode="high_compression", compression=12, store_size=False)
    with open(path, "wb") as f:
        f.write(struct.pack("<I", len(raw)) + packed)
    print(f"descriptions: {len(raw)} bytes, {len(packed)} compressed", file=sys.stderr)


if __name__ == "__main__":
    main()
