{
  description = "aulos audio server";
  inputs.nixpkgs.url = "nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "aulos";
          version = "0.1.0";
          src = ../../..;
          cargoLock.lockFile = ../../../Cargo.lock;
          cargoBuildFlags = [ "-p" "aulos" "--features" "s3" ];
          # The tests need peers and loopback ports that the build has not.
          doCheck = false;
          postInstall = ''
            PREFIX=$out AULOS_BINARY=$out/bin/aulos bash scripts/install
          '';
          meta.mainProgram = "aulos";
        };
      });

      nixosModules.default = { config, lib, pkgs, ... }:
        let
          cfg = config.services.aulos;
          format = pkgs.formats.toml { };
          file = format.generate "aulos.toml" cfg.settings;
          program = lib.getExe self.packages.${pkgs.stdenv.hostPlatform.system}.default;
        in
        {
          options.services.aulos = {
            enable = lib.mkEnableOption "the aulos audio server";
            settings = lib.mkOption { inherit (format) type; default = { }; };
          };
          # The limits are those of the package's unit.
          config = lib.mkIf cfg.enable {
            systemd.packages = [ self.packages.${pkgs.stdenv.hostPlatform.system}.default ];
            systemd.services.aulos = {
              wantedBy = [ "multi-user.target" ];
              serviceConfig = {
                ExecStartPre = [ "" "${program} check --quiet --config ${file}" ];
                ExecStart = [ "" "${program} serve --config ${file} --state-dir /var/lib/aulos" ];
              };
            };
          };
        };
    };
}
