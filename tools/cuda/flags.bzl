"""A boolean build setting (Bazel's own are in skylib, which is not needed otherwise)."""

BoolFlagInfo = provider("Value of a build setting.", fields = ["value"])

def _bool_flag_impl(ctx):
    return BoolFlagInfo(value = ctx.build_setting_value)

bool_flag = rule(
    implementation = _bool_flag_impl,
    build_setting = config.bool(flag = True),
)
