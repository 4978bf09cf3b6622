instance-id: {{ config_get("volatile.cloud-init.instance-id", container.name) }}
local-hostname: {{ container.name }}
{{ config_get("user.meta-data", "") }}
