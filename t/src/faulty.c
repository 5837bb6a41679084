/* faulty.c - what the shell loads as a plugin, for the library of t/faulty
 *
 * That library contains the plugin, so it cannot have an entry of its own that
 * is named as the shell wants it. FAULTY is the library's path.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int flux_plugin_init (void *p)
{
    void *library = dlopen (FAULTY, RTLD_NOW | RTLD_NODELETE);
    int (*init) (void *);

    if (!library || !(*(void **)&init = dlsym (library, "faulty_plugin_init"))) {
        fprintf (stderr, "%s\n", dlerror ());
        return -1;
    }
    return init (p);
}
