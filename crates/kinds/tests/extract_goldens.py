#!/usr/bin/env python3
"""Makes each kind's testdata/golden.json from recorded answers of an upstream API server.

Usage: extract_goldens.py GOLDEN_DIRECTORY, from this crate's folder. GOLDEN_DIRECTORY holds `cases/AREA/NAME.json` and `upstream-*/AREA/NAME.json`.

A golden.json is {"bases": {name: object}, "cases": [...]}. A case is a create (`in` -> `stored` or `errors`), an update (`in`, `old` ->
`stored` or `errors`) or a table row (`in` -> `cells`). Objects that are nearly one of the bases are stored as the difference.
"""

import glob
import json
import os
import re
import sys

AREAS = ["a-objects", "a-tables", "b-updates", "b-validation", "e-subresources", "f-deletes"]
TIME, MICROTIME = "2024-02-03T04:05:06Z", "2024-02-03T04:05:06.000000Z"
GROUPS = {"": "core", "rbac.authorization.k8s.io": "rbac"}


def folder(group, singular):
    return os.path.join("src", GROUPS.get(group, group.split(".")[0]), singular)


def concrete(value):
    """Puts plain values where the recording has placeholders that a decoder would refuse."""
    if isinstance(value, dict):
        return {k: concrete(v) for k, v in value.items() if k != "managedFields"}
    if isinstance(value, list):
        return [concrete(v) for v in value]
    if isinstance(value, str):
        if value == "<nodePort>":
            return 30001
        value = value.replace("<microtime>", MICROTIME).replace("<time>", TIME)
        value = re.sub(r"<uid:(\d+)>", r"uid-\1", value)
        return re.sub(r"<clusterIP:(\d+)>", r"10.96.1.\1", value)
    return value


def at(value, path):
    for step in path:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def edit(value, set_, unset):
    value = json.loads(json.dumps(value))
    for path, new in (set_ or {}).items():
        steps = path.split("/")
        parent = value
        for step in steps[:-1]:
            parent = parent[int(step)] if isinstance(parent, list) else parent.setdefault(step, {})
        if isinstance(parent, list):
            if steps[-1] == "-":
                parent.append(new)
            else:
                parent[int(steps[-1])] = new
        else:
            parent[steps[-1]] = new
    for path in unset or []:
        steps = path.split("/")
        try:
            parent = at(value, steps[:-1])
        except (KeyError, IndexError, TypeError):
            continue
        if isinstance(parent, list):
            del parent[int(steps[-1])]
        else:
            parent.pop(steps[-1], None)
    return value


def merged(target, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merged(target.get(key), value)
    return target


class Case:
    def __init__(self, name):
        self.name, self.answers, self.objects = name, {}, {}

    def text(self, text):
        text = text.replace("${ns}", "g-" + self.name)
        whole = re.fullmatch(r"\$\{([^}]+)\}", text)
        if whole:
            return self.lookup(whole.group(1))
        return re.sub(r"\$\{([^}]+)\}", lambda m: str(self.lookup(m.group(1))), text)

    def lookup(self, path):
        steps = path.split(".")
        return at(self.answers[steps[0]], steps[1:])

    def body(self, body):
        if isinstance(body, dict):
            if "$from" in body:
                base = self.answers[body["$from"]]
                return edit(base, self.body(body.get("$set")), body.get("$unset"))
            return {self.text(k): self.body(v) for k, v in body.items()}
        if isinstance(body, list):
            return [self.body(v) for v in body]
        return self.text(body) if isinstance(body, str) else body


def parse(path):
    """(group, version, namespace, resource, name, subresource) of an API path."""
    parts = path.split("?")[0].strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    rest += [None, None]
    return group, version, namespace, rest[0], rest[1], rest[2]


def play(root, area, name, emit):
    steps = json.load(open(f"{root}/cases/{area}/{name}.json"))["steps"]
    upstream = glob.glob(f"{root}/upstream-*")[0]
    recorded = {s["id"]: s for s in json.load(open(f"{upstream}/{area}/{name}.json"))["steps"]}
    case = Case(name)
    for step in steps:
        try:
            path = case.text(step["path"])
            body = case.body(step.get("body"))
        except (KeyError, IndexError, TypeError):
            continue
        where = parse(path)
        answer = recorded.get(step.get("id"), {}).get("response")
        if where is None:
            continue
        group, version, namespace, resource, object_name, subresource = where
        if step["method"] == "POST" and isinstance(body, dict) and object_name is None:
            metadata = body.get("metadata")
            object_name = metadata.get("name") if isinstance(metadata, dict) else None
        key = (resource, namespace, object_name)
        accept = step.get("headers", {}).get("Accept", "")
        table = "as=Table" in accept
        if answer is None:
            if step["method"] == "GET" and step.get("id") and key in case.objects:
                case.answers[step["id"]] = case.objects[key]
            if step["method"] == "POST" and isinstance(body, dict) and "in" not in step:
                case.objects.setdefault(key, None)
                case.answers[("input",) + key] = body
            continue
        got = answer.get("body")
        if not isinstance(got, dict):
            continue
        got = concrete(got)
        ident = {"case": f"{area}/{name}/{step['id'].split()[0]}", "group": group, "version": version}
        if subresource:
            ident["subresource"] = subresource
        if namespace:
            ident["namespace"] = namespace
        warnings = [re.sub(r'^299 - "(.*)"$', r"\1", w) for w in answer["headers"].get("warning", [])]
        message = got.get("message", "") if got.get("kind") == "Status" else ""
        invalid = re.match(r'^\S+ "[^"]*" is invalid: (.*)$', message, re.S) if answer["status"] == 422 else None
        result = {}
        if invalid:
            result = {"errors": concrete(invalid.group(1))}
        elif answer["status"] in (200, 201) and got.get("kind") != "Status":
            result = {"stored": got}
        if result and warnings:
            result["warnings"] = warnings
        plain = isinstance(body, dict) and not table and "as=Partial" not in accept and "apply" not in str(step.get("headers"))
        if result and plain and step["method"] == "POST" and not subresource:
            emit(resource, {**ident, "in": concrete(body), **result})
        if step["method"] == "PATCH" and "merge-patch" in json.dumps(step.get("headers", {})) and "strategic" not in json.dumps(step.get("headers", {})):
            # Patching is not a kind's, so the case holds its result. The scale of an object is patched elsewhere.
            if case.objects.get(key) and isinstance(body, dict) and subresource != "scale":
                body = merged(case.objects[key], body)
                if result and plain:
                    emit(resource, {**ident, "in": concrete(body), "old": concrete(case.objects[key]), **result})
        if result and plain and step["method"] == "PUT" and case.objects.get(key):
            emit(resource, {**ident, "in": concrete(body), "old": concrete(case.objects[key]), **result})
        if table and answer["status"] == 200 and step["method"] == "GET" and got.get("kind") == "Table":
            for row in got.get("rows", []):
                meta = (row.get("object") or {}).get("metadata")
                if not meta:
                    continue
                row_key = (resource, meta.get("namespace"), meta["name"])
                object_ = case.objects.get(row_key)
                if object_ is None:
                    object_ = case.answers.get(("input",) + row_key)
                if object_ is None:
                    continue
                one = {**ident, "in": concrete(object_), "cells": row["cells"], "made": case.objects.get(row_key) is not None}
                if meta.get("namespace"):
                    one["namespace"] = meta["namespace"]
                if got.get("columnDefinitions"):
                    one["columns"] = [[c["name"], c["type"], c["format"], c["priority"]] for c in got["columnDefinitions"]]
                emit(resource, one)
        if answer["status"] in (200, 201) and got.get("kind") != "Status" and "items" not in got and not table and "as=" not in accept:
            case.answers[step["id"]] = got
            if object_name and "dryRun" not in path and not (subresource in ("scale", "token", "binding", "eviction")):
                case.objects[key] = got
                if step["method"] == "DELETE" and not got.get("metadata", {}).get("deletionTimestamp"):
                    case.objects.pop(key, None)
        elif answer["status"] < 300 and step.get("id"):
            case.answers[step["id"]] = got


def difference(new, base, prefix="", depth=0):
    """[(set, unset)] that turns base into new, or None if that is not smaller."""
    if isinstance(new, dict) and isinstance(base, dict):
        out_set, out_unset = {}, []
        for key in base:
            if key not in new:
                out_unset.append(prefix + key.replace("~", "~0").replace("/", "~1"))
        for key, value in new.items():
            path = prefix + key.replace("~", "~0").replace("/", "~1")
            if key not in base:
                out_set[path] = value
            elif value != base[key]:
                s, u = difference(value, base[key], path + "/")
                if s is None:
                    out_set[path] = value
                else:
                    out_set.update(s)
                    out_unset += u
        return out_set, out_unset
    if isinstance(new, list) and isinstance(base, list) and len(new) == len(base) and new:
        out_set, out_unset = {}, []
        for i, (a, b) in enumerate(zip(new, base)):
            if a != b:
                s, u = difference(a, b, f"{prefix}{i}/")
                if s is None:
                    out_set[f"{prefix}{i}"] = a
                else:
                    out_set.update(s)
                    out_unset += u
        return out_set, out_unset
    return None, None


class Bases:
    def __init__(self):
        self.objects = []

    def pack(self, value):
        best = None
        for i, base in enumerate(self.objects):
            s, u = difference(value, base)
            if s is None:
                continue
            packed = {"$base": str(i)}
            if s:
                packed["$set"] = s
            if u:
                packed["$unset"] = u
            size = len(json.dumps(packed))
            if best is None or size < best[0]:
                best = (size, packed)
        plain = len(json.dumps(value))
        if best and best[0] * 3 < plain * 2:
            return best[1]
        if plain > 250 and len(self.objects) < 12:
            self.objects.append(value)
            return {"$base": str(len(self.objects) - 1)}
        return value


def main():
    root = sys.argv[1]
    names = {}
    for line in open("tests/kinds.txt"):
        group, plural, singular = line.split()
        names[("" if group == "-" else group, plural)] = folder("" if group == "-" else group, singular)
    # events.k8s.io serves the core group's events.
    names[("events.k8s.io", "events")] = names[("", "events")]
    out, seen = {}, {}
    for area in AREAS:
        for path in sorted(glob.glob(f"{root}/cases/{area}/*.json")):
            # Those ask about decoding and query parameters, which are not a kind's.
            if os.path.basename(path).startswith("strict-"):
                continue
            name = os.path.basename(path)[:-5]

            def emit(resource, case):
                where = names.get((case["group"], resource))
                if where is None:
                    return
                # The same question asked again proves nothing more.
                question = json.dumps({k: v for k, v in case.items() if k not in ("case", "namespace")}, sort_keys=True).replace(name, "")
                if question in seen.setdefault(where, set()):
                    return
                seen[where].add(question)
                out.setdefault(where, []).append(case)

            play(root, area, name, emit)
    for where, cases in out.items():
        bases = Bases()
        packed = []
        for case in cases:
            case = dict(case)
            for field in ("in", "old", "stored"):
                if field in case:
                    case[field] = bases.pack(case[field])
            packed.append(case)
        os.makedirs(f"{where}/testdata", exist_ok=True)
        with open(f"{where}/testdata/golden.json", "w") as f:
            f.write('{"bases":[\n' + ",\n".join(json.dumps(b, separators=(",", ":")) for b in bases.objects) + '],\n"cases":[\n')
            f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in packed) + "]}\n")
        print(f"{where}: {len(cases)} cases, {os.path.getsize(where + '/testdata/golden.json')} bytes")


main()
