// Loads an addon as Node does, in a program that has Node's functions by name only (stubs.h, made from the addon): what is asked is whether
// this C library has everything else.
#include <dlfcn.h>
#include <stdio.h>

#include "stubs.h"

int main(int count, char **words) {
    void *addon = count == 2 ? dlopen(words[1], RTLD_NOW) : NULL;
    if (addon && dlsym(addon, "napi_register_module_v1")) return 0;
    fprintf(stderr, "%s\n", dlerror());
    return 1;
}
