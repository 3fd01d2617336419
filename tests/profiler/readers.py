"""usage: readers.py TANDEM
Records a small training and reads the exports as others do: Perfetto's own message definitions (PyPI: perfetto) must know every
field, slices must balance, names must resolve; Chrome's JSON must be JSON with the same slices. Skips, with the reason, where the
package cannot be had (tests/web/packages.py)."""
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "web"))
import packages  # noqa: E402

CONFIGURATION = """
model: {name: dlrm, dim: 8, bottom: [16], top: [16]}
data: {format: synthetic, batch: 64, train_rows: 2000, test_rows: 0, dense: 4, table_rows: [300, 100, 20]}
devices: [cpu, {name: accel, backend: emulated, memory: 16MiB, cores: 1, link: 12GB/s}]
placement: {default: accel, rules: [{match: "table.*", target: cpu}]}
train: {steps: 20}
"""


def unknown_fields(message):
    from google.protobuf import unknown_fields as unknown
    if len(unknown.UnknownFieldSet(message)):
        yield message.DESCRIPTOR.full_name
    for descriptor, value in message.ListFields():
        if descriptor.message_type:
            for inner in (value if hasattr(value, "__len__") and not hasattr(value, "ListFields") else [value]):
                yield from unknown_fields(inner)


def check_perfetto(path):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
    trace = protos.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks, names, depth, slices = {}, {}, {}, []
    for packet in trace.packet:
        assert not list(unknown_fields(packet)), list(unknown_fields(packet))
        for name in packet.interned_data.event_names:
            names[name.iid] = name.name
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in tracks, "an event on a track that nothing describes"
        if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
            depth[event.track_uuid] = depth.get(event.track_uuid, 0) + 1
            slices.append(event.name or names[event.name_iid])
        elif event.type == protos.TrackEvent.TYPE_SLICE_END:
            depth[event.track_uuid] -= 1
        else:
            assert event.type == protos.TrackEvent.TYPE_COUNTER and tracks[event.track_uuid].HasField("counter")
    assert slices and not any(depth.values()), depth
    return slices


def main():
    packages.use()
    warnings.simplefilter("error")  # from here on a reader that warns fails
    tandem = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "x.yaml").write_text(CONFIGURATION)
        for words in (["train", "x.yaml", "--run", "r", "--profile"],
                      ["profile", "r", "--perfetto", "t.pftrace", "--chrome", "t.json"]):
            subprocess.run([tandem, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        slices = check_perfetto(folder / "t.pftrace")
        chrome = json.loads((folder / "t.json").read_text())["traceEvents"]
        assert sorted(e["name"] for e in chrome if e["ph"] == "X") == sorted(slices)
        print(f"{len(slices)} slices, read by Perfetto's definitions without an unknown field")


main()
