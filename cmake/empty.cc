// What has objects or a precompiled header alone needs a source file too.
