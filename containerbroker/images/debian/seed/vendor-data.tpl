{{ config_get("cloud-init.vendor-data", config_get("user.vendor-data", "#cloud-config")) }}
