"""This project's own probes; a suite names this file, and each probe applies to every case unless a table narrows it."""

from canary_replay import Case, Response, Score, probe


@probe("not_empty", category="format", reads_case=False)
def not_empty(case: Case, response: Response) -> Score:
    """The answer says or calls something.

    Why it matters: an empty answer raises nothing anywhere and reaches the user as a blank page.
    Passes: ``Canberra.``
    Fails: an answer of white space without a tool call.
    """
    if response.text.strip() or response.tool_calls:
        return Score(1.0)
    return Score(0.0, "the answer is empty")
