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
MAN := $(wildcard doc/*.[1-8] src/bin/*/*.[1-8])
INSTALL = install

all:
	cargo build --release

check:
	t/runtests

install:
	@test -e $(BUILD)/libflux_bcast.so || { echo "nothing built in $(BUILD); run make first"; exit 1; }
	$(INSTALL) -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR) \
		$(DESTDIR)$(PLUGINDIR) $(DESTDIR)$(CMDDIR)
	$(INSTALL) -m 755 $(BUILD)/libflux_bcast.so $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libflux-bcast.so
	$(INSTALL) -m 755 $(BUILD)/libflux_bcast.so $(DESTDIR)$(PLUGINDIR)/bcast.so
	$(INSTALL) -m 644 include/flux-bcast.h $(DESTDIR)$(INCLUDEDIR)
	sed -e 's|@prefix@|$(PREFIX)|; s|@libdir@|$(LIBDIR)|; s|@includedir@|$(INCLUDEDIR)|' \
		-e 's|@version@|$(VERSION)|' include/flux-bcast.pc.in \
		>$(DESTDIR)$(LIBDIR)/pkgconfig/flux-bcast.pc
	chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/flux-bcast.pc
	cd $(BUILD) && $(INSTALL) -m 755 $(COMMANDS) $(DESTDIR)$(CMDDIR)
	for page in $(MAN); do \
		dir=$(DESTDIR)$(MANDIR)/man$${page##*.} && $(INSTALL) -d $$dir && \
		$(INSTALL) -m 644 $$page $$dir || exit 1; \
	done

uninstall:
	cd $(DESTDIR)$(LIBDIR) && rm -f $(SONAME) libflux-bcast.so pkgconfig/flux-bcast.pc
	rm -f $(DESTDIR)$(INCLUDEDIR)/flux-bcast.h $(DESTDIR)$(PLUGINDIR)/bcast.so
	cd $(DESTDIR)$(CMDDIR) && rm -f $(COMMANDS)
	for page in $(notdir $(MAN)); do \
		rm -f $(DESTDIR)$(MANDIR)/man$${page##*.}/$$page; \
	done

.PHONY: all check install uninstall
