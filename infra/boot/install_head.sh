# Runs on the head as a managed run command, after the lines that set ADMIN, WHEEL,
# RAY_RESTARTS_WITH, FIRST_WORKERS, TIMEOUT_S and SUMMARY, and unpack $incoming: the wheel of the head's software and the
# settings of the cluster. It can be repeated at any point, and restarts only what has changed.
lib=/usr/local/lib/volley
home=/var/lib/volley
deadline=$((SECONDS + TIMEOUT_S))

# cloud-init creates the folder and its owner.
until [[ -d $home ]] && id ray identity mlflow > /dev/null 2>&1; do
  if ((SECONDS > deadline)); then
    echo "volley: cloud-init on the head has not created $home (/var/log/cloud-init-output.log)" >&2
    exit 1
  fi
  sleep 1
done

# Azure has given the machine the keys of the day on which it was made.
keys=$(getent passwd "$ADMIN" | cut -d: -f6)/.ssh
install --directory --mode 0700 --owner "$ADMIN" --group "$ADMIN" "$keys"
install --mode 0600 --owner "$ADMIN" --group "$ADMIN" "$incoming/authorized_keys" "$keys/.new"
mv "$keys/.new" "$keys/authorized_keys"

# A folder for each version, and a link to the present one: no process sees a part of a version.
version=$lib/versions/$(sha256sum < "$incoming/$WHEEL" | cut -c1-16)
# Whether services still run another version, also because an earlier run of this script ended early.
changed=0
[[ $(cat "$lib/running-version" 2> /dev/null) == "$version" ]] || changed=1
if [[ $(readlink "$lib/software" || true) != "$version" ]]; then
  changed=1
  rm -f "$lib/running-version"
  rm -rf "$version"
  python3 -m zipfile --extract "$incoming/$WHEEL" "$version"
  chmod -R a+rX "$version"
  ln -sfn "$version" "$lib/software.new"
  mv --no-target-directory "$lib/software.new" "$lib/software"
  find "$lib/versions" -mindepth 1 -maxdepth 1 ! -path "$version" -exec rm -rf {} +
fi

# Users are made by cloud-init; these folders are of no use to it.
install --directory --mode 0750 --owner identity --group ray /var/lib/volley-identity
install --directory --mode 0750 --owner mlflow --group mlflow /var/lib/volley-mlflow

# Ray reads the first file again in each update: it is whole at any moment. With scaling: cpu there is
# none, and Ray starts without its autoscaler.
for file in autoscaling.yaml cluster-settings.json; do
  if [[ -e $incoming/$file ]]; then
    install --mode 0644 "$incoming/$file" "/etc/volley/.$file.new"
    mv "/etc/volley/.$file.new" "/etc/volley/$file"
  else
    rm -f "/etc/volley/$file" "$home/cluster-workers.json"
  fi
done

# Ray imports the node provider, and reads its settings, only when it starts.
ray_restarts=0
[[ $(cat "$lib/ray-restarts-with" 2> /dev/null) == "$RAY_RESTARTS_WITH" ]] || ray_restarts=1
install --mode 0644 "$lib"/software/head/units/* /etc/systemd/system/
systemctl daemon-reload
always=(identity.service sync-results.timer cluster-sleep.timer disk-space.timer mlflow-undelivered.timer)
always+=(security-updates.timer scheduled-events.service)
systemctl enable --quiet experiments.service mlflow.service "${always[@]}"
if ((ray_restarts)) && systemctl --quiet is-active ray-head.service; then
  echo "the autoscaler has changed: Ray restarts, and experiments continue from their checkpoints"
  systemctl restart ray-head.service
elif ((changed)) && systemctl --quiet is-active experiments.service; then
  echo "the queue loads its new version; experiments keep training"
  systemctl reload experiments.service
fi
# They wait for the Python environment, which a new head does not have yet.
systemctl start --no-block experiments.service mlflow.service share-environment.service
systemctl start "${always[@]}"
((!changed)) || systemctl restart scheduled-events.service identity.service

# Once, on a new head. It fails where it is running already.
if ((FIRST_WORKERS)) && [[ ! -e $home/cluster-workers.json ]]; then
  systemd-run --quiet --unit=first-workers --collect --uid=ray --setenv=PYTHONPATH="$lib/software" --working-directory=/ \
    --property=EnvironmentFile=/etc/volley/machine.env \
    python3 -m head.autoscaler.first_workers "$FIRST_WORKERS" || true
fi
echo "$RAY_RESTARTS_WITH" > "$lib/ray-restarts-with"
echo "$version" > "$lib/running-version"
# `pulumi up` reads this line, so that no first connection of a laptop is blind.
if [[ -e /etc/ssh/ssh_host_ed25519_key.pub ]]; then
  echo "host key: $(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)"
fi
echo "$SUMMARY"
