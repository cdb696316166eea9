"""Requests for an autoscale setting; delayed_changes.py scales by it.

https://learn.microsoft.com/rest/api/monitor/autoscale-settings/update
"""

from __future__ import annotations

from dataclasses import replace

from rehearsal.azure.azure_errors import not_found, refused
from rehearsal.azure.http_server import Answer
from rehearsal.azure.management.request_context import Request, RequestContext


def patch_setting(context: RequestContext, request: Request) -> Answer:
    """Replaces the properties that the request names."""
    setting_id = request.parts["id"]
    context.allow(request, "Microsoft.Insights/autoscaleSettings/write", setting_id)
    with context.azure.state_file.changed() as state:
        setting = state.resources.get(setting_id)
        if setting is None:
            raise refused(not_found(setting_id))
        inputs = {**setting.inputs, **request.body["properties"]}
        state.resources[setting_id] = replace(setting, inputs=inputs)
    return Answer(200, {"id": setting_id, "properties": request.body["properties"]})
