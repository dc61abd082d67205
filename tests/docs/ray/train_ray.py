"""Four tasks on two workers of Ray, each of which makes garbage."""

import ray


@ray.remote
def train(steps):
    for _ in range(steps):
        nodes = [[] for _ in range(2_000)]
        for node in nodes:
            node.append(node)
    return steps


ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
print("steps of 4 tasks:", ray.get([train.remote(100) for _ in range(4)]))
ray.shutdown()
