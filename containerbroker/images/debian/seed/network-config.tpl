{% if config_get("cloud-init.network-config", "") != "" %}{{ config_get("cloud-init.network-config", "") }}{% else %}version: 2
ethernets: {eth0: {dhcp4: true}}{% endif %}
