"""From messages to snapshots: conflict detection, manifests, publication, retries. The only place that makes anything visible."""
