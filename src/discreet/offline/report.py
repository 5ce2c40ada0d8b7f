from pathlib import Path


class R:
    def to_dict(self):
        return {}

    def to_markdown(self):
        return "stub\n"

    def figures(self, folder):
        return []


def report_of(*a, **k):
    return R()
