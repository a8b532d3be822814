// Loads an addon as Node does, in a program that defines Node's functions as stubs (stubs.h, made
// from the addon). It checks whether this C library has everything else.
#include <dlfcn.h>
#include <stdio.h>

#include "stubs.h"

int main(int count, char **words) {
    void *addon = count == 2 ? dlopen(words[1], RTLD_NOW) : NULL;
    if (addon && dlsym(addon, "napi_register_module_v1")) return 0;
    fprintf(stderr, "%s\n", dlerror());
    return 1;
}
