# Builds with cargo and installs where Flux looks.
#
#	make && make install [PREFIX=/usr/local] [DESTDIR=...]
#
# Where a Flux is installed (pkg-config knows flux-core) and PREFIX is not given,
# plugin and commands go where that Flux looks for them; else below PREFIX, and
# README says how to have Flux look there.

BUILD = target/release
PKG_CONFIG = pkg-config

VERSION := $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SONAME := libflux-bcast.so.0

# flux VARIABLE: that pkg-config variable of flux-core, unless PREFIX is given.
ifeq ($(origin PREFIX), undefined)
flux = $(shell $(PKG_CONFIG) --variable=$(1) flux-core 2>/dev/null)
else
flux =
endif
PREFIX = $(or $(call flux,prefix),/usr/local)
LIBDIR = $(or $(call flux,libdir),$(PREFIX)/lib)
INCLUDEDIR = $(PREFIX)/include
PLUGINDIR = $(or $(call flux,fluxshellpluginpath),$(LIBDIR)/flux/shell/plugins)
CMDDIR = $(or $(call flux,fluxcmddir),$(PREFIX)/libexec/flux/cmd)
MANDIR = $(PREFIX)/share/man

COMMANDS := $(notdir $(wildcard src/bin/flux-*))
MAN := $(wildcard src/bin/*/*.[1-8] src/capi/man/*.3)
# All names of the functions that a manual page describes.
FUNCTIONS = sed -n '/^\.SH NAME/,/\\-/{/^\.SH/d;s/\\-.*//;s/,/ /g;p;}'
INSTALL = install

# Names with a space in them are fine in DESTDIR, not in the others.
D = "$(DESTDIR)"

all:
	cargo build --release --workspace

check:
	t/runtests

install:
	@test -e "$(BUILD)/libflux_bcast.so" || { echo "nothing built in $(BUILD); run make first"; exit 1; }
	$(INSTALL) -d $(D)$(LIBDIR)/pkgconfig $(D)$(INCLUDEDIR) $(D)$(PLUGINDIR) $(D)$(CMDDIR)
	$(INSTALL) -m 755 "$(BUILD)/libflux_bcast.so" $(D)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(D)$(LIBDIR)/libflux-bcast.so
	$(INSTALL) -m 755 "$(BUILD)/libflux_bcast.so" $(D)$(PLUGINDIR)/bcast.so
	$(INSTALL) -m 644 include/flux-bcast.h $(D)$(INCLUDEDIR)
	sed -e 's|@prefix@|$(PREFIX)|' \
		-e 's|@libdir@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
		-e 's|@includedir@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(INCLUDEDIR))|' \
		-e 's|@version@|$(VERSION)|' include/flux-bcast.pc.in \
		>$(D)$(LIBDIR)/pkgconfig/flux-bcast.pc
	chmod 644 $(D)$(LIBDIR)/pkgconfig/flux-bcast.pc
	for command in $(COMMANDS); do \
		$(INSTALL) -m 755 "$(BUILD)/$$command" $(D)$(CMDDIR) || exit 1; \
	done
	for page in $(MAN); do \
		dir=$(D)$(MANDIR)/man$${page##*.} && $(INSTALL) -d "$$dir" && \
		$(INSTALL) -m 644 $$page "$$dir" || exit 1; \
	done
	cd src/capi/man && for page in *.3; do \
		for name in $$($(FUNCTIONS) $$page); do \
			test $$name.3 = $$page || \
			echo ".so man3/$$page" >$(D)$(MANDIR)/man3/$$name.3 || exit 1; \
		done; \
	done
	@echo "plugin:   $(PLUGINDIR)/bcast.so"
	@echo "commands: $(CMDDIR)"
	@looks=$$($(PKG_CONFIG) --variable=fluxshellpluginpath flux-core 2>/dev/null); \
	if [ -z "$$looks" ]; then \
		echo "pkg-config does not know flux-core, so this may not be where your Flux looks:"; \
		echo "set PKG_CONFIG_PATH to its lib/pkgconfig and install again; or load the plugin"; \
		echo "by its full path and set FLUX_EXEC_PATH=$(CMDDIR)"; \
	elif [ "$$looks" != "$(PLUGINDIR)" ]; then \
		echo "Flux looks for plugins in $$looks:"; \
		echo "load this one by its full path and set FLUX_EXEC_PATH=$(CMDDIR)"; \
	fi

uninstall:
	cd $(D)$(LIBDIR) && rm -f $(SONAME) libflux-bcast.so pkgconfig/flux-bcast.pc
	rm -f $(D)$(INCLUDEDIR)/flux-bcast.h $(D)$(PLUGINDIR)/bcast.so
	cd $(D)$(CMDDIR) && rm -f $(COMMANDS)
	for page in $(notdir $(MAN)); do \
		rm -f $(D)$(MANDIR)/man$${page##*.}/$$page; \
	done
	for name in $$($(FUNCTIONS) src/capi/man/*.3); do \
		rm -f $(D)$(MANDIR)/man3/$$name.3; \
	done

.PHONY: all check install uninstall
