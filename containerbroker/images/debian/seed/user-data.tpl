{{ config_get("cloud-init.user-data", config_get("user.user-data", "#cloud-config")) }}
